"""Figure 3 of wang2024: teachers that can be approximated stably have exponentially decaying memory."""

from functools import partial

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.stable_approximation import keeps, radii_of_widths
from sostenuto.experiments.tasks.tails import is_exponential, shares, why_undecided
from sostenuto.experiments.tasks.teachers import deviation, random_tanh_teacher, remembered, taught
from sostenuto.report.figures.plot import lines


def run(settings: Settings, bench: Workbench) -> None:
    """Draw teachers, measure their memory, teach students, filter."""
    rows, curves, lags = [], {}, []
    for gain in settings.gains:
        teacher = random_tanh_teacher(settings.teacher_width, gain, settings.step_size, bench.seed)
        name = f"gain {gain:g}"
        data = taught(teacher, name, bench.seed, num_train=settings.num_train, num_steps=settings.num_steps)
        memory = bench.cell(f"memory/gain={gain:g}", partial(remembered, teacher, settings.horizon))
        radii = radii_of_widths(bench, settings, data, name, "residual", activation="tanh")
        size = deviation(data)
        passes = radii["error"][-1] < settings.good * size and keeps(radii["radius"])
        rows.append((name, memory["kind"], radii["error"][-1] / size, radii["radius"][-1], "yes" if passes else "no"))
        curves[f"{name}{', passes' if passes else ''}"] = memory["memory"]
        lags = memory["lags"]
    passed = [row for row in rows if row[4] == "yes"]
    told = ", ".join(f"{row[0]}: {row[1]}" for row in passed) or "none"
    kinds = [row[1] for row in passed]
    least, most = (share == 1 for share in shares(kinds, is_exponential)) if passed else (False, True)
    untold = why_undecided(least, most, kinds) if passed else "no teacher passes"
    bench.law("stably approximated teachers forget exponentially", least, told, undecided=untold)
    bench.law("some teachers are approximated stably", bool(passed), f"{len(passed)} of {len(rows)}")
    bench.number("teachers that pass", len(passed))
    columns = ("teacher", "memory", "error over deviation", "β up to twice the narrowest's error, widest", "passes")
    bench.table("Teachers", columns, rows)
    draw = partial(lines, x=lags, series=curves, labels=("lag", "memory"), log="y")
    bench.figure("Memory of the teachers", draw)
