"""Table 1 of alemohammad2021: mean accuracy, P90, P95, PMA and Friedman rank over UCR data sets."""

from collections.abc import Sequence

import numpy as np

from sostenuto.estimators.rntk.base import grid_points
from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.ucr_kernels import KERNELS, grid_of
from sostenuto.experiments.tasks.ucr_table import (
    COLUMNS,
    MEASURES,
    WIDE,
    WIDE_RECURRENT,
    Rows,
    accuracies,
    compare_means,
    compare_wide,
    compared_rows,
    matrix,
    measures,
    wide_accuracies,
)
from sostenuto.experiments.tasks.ucr_wide_choice import family_points
from sostenuto.report.figures.plot import bars


def run(settings: Settings, bench: Workbench) -> None:
    """Run what Table 2 has, then sum it up: the kernels over all sets, all columns over those with networks."""
    rows, paper = accuracies(settings, bench), compared_rows()
    compare_means(bench, rows, paper)
    with_networks = list(rows)[: settings.network_sets]
    kernels = summary(bench, rows, paper, list(rows), KERNELS)
    everything = summary(bench, rows, paper, with_networks, COLUMNS)
    mean, p90, p95, pma, rank = kernels
    bench.number("RNTK: mean accuracy", float(mean[0]))
    bench.number("RNTK: Friedman rank among the kernels", float(rank[0]))
    bench.law("RNTK has the highest mean of the kernels", bool(mean.argmax() == 0), _said(KERNELS, mean))
    bench.law("RNTK has the best Friedman rank of the kernels", bool(rank.argmin() == 0), _said(KERNELS, rank))
    first = [bool(each[0] == each.max()) for each in (p90, p95, pma)]
    said = "; ".join(
        f"{name}: {_said(KERNELS, each)}" for name, each in zip(("P90", "P95", "PMA"), kernels[1:4], strict=True)
    )
    bench.law("RNTK is first in P90, P95 and PMA of the kernels", all(first), said)
    best = float(everything[0, len(KERNELS) :].max())
    said = f"RNTK {everything[0, 0]:.1f} %, the best of the networks {best:.1f} %, on {len(with_networks)} sets"
    fewer = _fewer_networks(settings, bench)
    bench.law("RNTK is ahead of the trained networks", bool(everything[0, 0] > best), said, not_judged=fewer)
    _with_wide(bench, rows, wide_accuracies(settings, bench), paper, settings.every)
    bench.note(f"{len(rows)} data sets were run, trained networks on the first {len(with_networks)} of them.")
    ours = dict(zip(COLUMNS, everything[0].tolist(), strict=True))
    known = [name for name in with_networks if name in paper]
    theirs = dict(zip(COLUMNS, matrix(paper, known, COLUMNS).mean(axis=0).tolist(), strict=True)) if known else None
    bench.figure(
        "Mean accuracy",
        lambda axes: bars(axes, ours, expected=theirs, labels=("mean test accuracy, %", "")),
        caption=f"Over {len(with_networks)} sets; the mark is the paper's mean over the same sets.",
    )


def summary(bench: Workbench, rows: Rows, paper: Rows, names: list[str], columns: Sequence[str]) -> np.ndarray:
    """Add a table of the five measures, ours and the paper's on the sets it has; return ours on all of ``names``."""
    known = [name for name in names if name in paper]
    ours = measures(matrix(rows, known or names, columns))
    theirs = measures(matrix(paper, known, columns)) if known else np.full_like(ours, np.nan)
    written = [
        (measure, *(f"{value:.2f} / {other:.2f}" for value, other in zip(ours[i], theirs[i], strict=True)))
        for i, measure in enumerate(MEASURES)
    ]
    bench.table(f"{len(columns)} columns over {len(known or names)} sets, ours / the paper's", ("", *columns), written)
    return measures(matrix(rows, names, columns))


def unequal_choice(columns: Sequence[str], every: int = 1) -> str:
    """Say among how many kernels each column is chosen, where they are not equally many: no order is judged then.

    >>> unequal_choice(("RNTK (wide)", "RBF (wide)")), unequal_choice(("RBF", "RBF"))
    ('chosen among unequally many kernels, up to: RNTK (wide) 224, RBF (wide) 22', '')
    """
    tried = [_tried(column, every) for column in columns]
    said = ", ".join(f"{column} {count}" for column, count in zip(columns, tried, strict=True))
    return f"chosen among unequally many kernels, up to: {said}" if len(set(tried)) > 1 else ""


def _tried(column: str, every: int) -> int:
    family = column.removesuffix(" (wide)")
    return len(family_points(family, every) if family != column else grid_points(grid_of(column, every)))


def _fewer_networks(settings: Settings, bench: Workbench) -> str:
    """Say how many sizes of a network there were, where the paper has more: the kernels keep all of their grids."""
    paper = bench.experiment.settings("paper")
    had, asked = (len(each.layers) * len(each.widths) for each in (settings, paper))
    return f"each network had {had} of the paper's {asked} sizes to choose from" if had < asked else ""


def _with_wide(bench: Workbench, rows: Rows, wide: Rows, paper: Rows, every: int) -> None:
    """Sum up the kernels with each wider choice in the RNTK's place, with all four so chosen, and all together."""
    compare_wide(bench, wide, paper)
    together = {name: {**row, **wide[name]} for name, row in rows.items() if name in wide}
    tables = [(column, *KERNELS[1:]) for column in WIDE_RECURRENT]
    results = [_measured(bench, together, columns) for columns in tables]
    _measured(bench, together, (*WIDE_RECURRENT, *KERNELS))
    for column, values in zip(WIDE_RECURRENT, results, strict=True):
        bench.number(f"{column}: mean accuracy", float(values[0, 0]))
        bench.number(f"{column}: Friedman rank in the RNTK's place", float(values[-1, 0]))
    _laws(bench, f"{WIDE[0]} in the RNTK's place has the", tables[0], results[0], every)
    widened = tuple(column for column in WIDE if column not in WIDE_RECURRENT[1:])
    run = {name: row for name, row in wide.items() if all(column in row for column in widened)}
    _laws(bench, f"{WIDE[0]} among four wider choices has the", widened, _measured(bench, run, widened), every)


def _measured(bench: Workbench, rows: Rows, columns: Sequence[str]) -> np.ndarray:
    """Add a table of the five measures over the rows and return them."""
    values = measures(matrix(rows, list(rows), columns))
    written = [(name, *(f"{value:.2f}" for value in values[i])) for i, name in enumerate(MEASURES)]
    bench.table(f"{', '.join(columns)} over {len(rows)} sets, ours", ("", *columns), written)
    return values


def _laws(bench: Workbench, law: str, columns: Sequence[str], values: np.ndarray, every: int) -> None:
    """Say whether the first column is first in the mean, in rank, and in the other three, where all had as much."""
    mean, *near, rank = values
    said = "; ".join(f"{name}: {_said(columns, each)}" for name, each in zip(("P90", "P95", "PMA"), near, strict=True))
    first = {
        "highest mean": (bool(mean[0] > mean[1:].max()), _said(columns, mean)),
        "best Friedman rank": (bool(rank[0] < rank[1:].min()), _said(columns, rank)),
        "highest P90, P95 and PMA": (all(bool(each[0] == each.max()) for each in near), said),
    }
    for what, (holds, evidence) in first.items():
        bench.law(f"{law} {what}", holds, evidence, not_judged=unequal_choice(columns, every))


def _said(columns: Sequence[str], values: np.ndarray) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in zip(columns, values, strict=True))
