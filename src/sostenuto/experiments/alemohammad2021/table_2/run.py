"""Table 2 of alemohammad2021: test accuracy of kernels and trained networks on every UCR data set."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.ucr_table import (
    COLUMNS,
    WIDE,
    WIDE_RECURRENT,
    accuracies,
    compare_means,
    compare_wide,
    compared_rows,
    leave_out,
    paper_rows,
    wide_accuracies,
)
from sostenuto.report.figures.plot import bars


def run(settings: Settings, bench: Workbench) -> None:
    """Run every column on every set; put each beside the paper's."""
    rows, paper = accuracies(settings, bench), compared_rows()
    wide = wide_accuracies(settings, bench)
    compare_means(bench, rows, paper)
    compare_wide(bench, wide, paper)
    for name in paper_rows():
        if name in rows:
            bench.number(name, rows[name]["RNTK"])
        else:
            leave_out(bench, name)
    written = {name: {**rows.get(name, {}), **wide.get(name, {})} for name in dict.fromkeys([*rows, *wide])}
    columns = (*COLUMNS, *WIDE)
    bench.table(
        "Test accuracy in %, ours / the paper's",
        ("data set", *columns),
        [
            (name, *(_pair(row.get(column), paper.get(name, {}).get(column)) for column in columns))
            for name, row in written.items()
        ],
    )
    others = sum(WIDE[-1] in row for row in wide.values())
    bench.note(
        f"{len(rows)} data sets were run, trained networks on the first {settings.network_sets} of them. The paper "
        f"does not have {' and '.join(WIDE_RECURRENT)}, run on {len(wide)}, nor the other wide ones, run on {others}."
    )
    ours = {name: row["RNTK"] for name, row in rows.items()}
    theirs = {name: row["RNTK"] for name, row in paper.items()}
    height = 90 + 18 * len(ours)
    bench.figure("RNTK", lambda axes: bars(axes, ours, expected=theirs, labels=("test accuracy, %", "")), height=height)


def _pair(ours: float | None, theirs: float | None) -> str:
    said = "–" if ours is None else f"{ours:.1f}"
    return said if theirs is None else f"{said} / {theirs:.1f}"
