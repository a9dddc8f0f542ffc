"""Figure 3 of rusch2021: EigenWorms with the last, or a random subset of the entries."""

from functools import partial
from statistics import fmean, pstdev

from sostenuto.data.dataset import Dataset
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import standard_error, unsure
from sostenuto.experiments.tasks.oscillator_fits import accuracies, joined, shortened, worms_stand_in
from sostenuto.report.figures.plot import lines

WAYS = ("last", "random")


def run(settings: Settings, bench: Workbench) -> None:
    """Train on parts of the sequences, chosen in two ways."""
    worms = _worms(settings, bench)
    entries, longest = settings.entries, max(settings.entries)
    chosen = {
        f"{how}/{number}": (shortened(worms, number, how, bench.seed), {})
        for how in WAYS
        for number in entries
        if number < longest
    }
    results = accuracies(bench, settings, {"whole": (shortened(worms, longest, "last"), {}), **chosen})
    whole = results["whole"]
    scores = {how: {number: results.get(f"{how}/{number}", whole) for number in entries} for how in WAYS}
    means = {how: [fmean(scores[how][number]) for number in entries] for how in WAYS}
    seen = "; ".join(f"{how}: {', '.join(f'{mean:.1f}' for mean in means[how])} %" for how in WAYS)
    bench.number("whole sequences", whole)
    ends = [(scores[how][entries[-1]], scores[how][entries[0]]) for how in WAYS]
    rises = [fmean(most) - fmean(least) for most, least in ends]
    doubts = [unsure(rise, list(map(standard_error, pair))) for rise, pair in zip(rises, ends, strict=True)]
    undecided = next((doubt for doubt in doubts if doubt), "")
    bench.law("accuracy rises with the entries read", min(rises) > 0, seen, undecided=undecided)
    gap = fmean(means["random"][:-1]) - fmean(means["last"][:-1])
    errors = [standard_error(scores[how][number]) / (len(entries) - 1) for how in WAYS for number in entries[:-1]]
    bench.law("random entries serve better than the last", gap > 0, seen, undecided=unsure(gap, errors))
    spreads = {how: [pstdev(scores[how][number]) for number in entries] for how in WAYS}
    draw = partial(
        lines, x=entries, series=means, spreads=spreads, labels=("entries", "test accuracy, %"), log="x", marks=True
    )
    bench.figure("Accuracy by entries", draw, caption="Mean and deviation over trainings.")


def _worms(settings: Settings, bench: Workbench) -> Dataset:
    if settings.dataset == "eigenworms/stand-in":
        return worms_stand_in(bench.seed, count=settings.count, num_steps=settings.num_steps)
    return joined(bench.data(settings.dataset))
