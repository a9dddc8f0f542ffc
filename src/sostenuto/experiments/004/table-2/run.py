"""Table 2 of paper 004: test accuracy of kernels and trained networks on every UCR data set."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.ucr_table import (
    COLUMNS,
    Rows,
    accuracies,
    compare_means,
    compared_rows,
    leave_out,
    paper_rows,
)
from sostenuto.report.figures.plot import bars


def run(settings: Settings, bench: Workbench) -> None:
    """Run every column on every set; put each beside the paper's."""
    rows, paper = accuracies(settings, bench), compared_rows()
    compare_means(bench, rows, paper)
    for name in paper_rows():
        if name in rows:
            bench.number(name, rows[name]["RNTK"])
        else:
            leave_out(bench, name)
    bench.table(
        "Test accuracy in %, ours / the paper's",
        ("data set", *COLUMNS),
        [(name, *(_pair(name, column, rows, paper) for column in COLUMNS)) for name in rows],
    )
    bench.note(f"{len(rows)} data sets were run, trained networks on the first {settings.network_sets} of them.")
    ours = {name: row["RNTK"] for name, row in rows.items()}
    theirs = {name: row["RNTK"] for name, row in paper.items()}
    height = 90 + 18 * len(ours)
    bench.figure("RNTK", lambda axes: bars(axes, ours, expected=theirs, labels=("test accuracy, %", "")), height=height)


def _pair(name: str, column: str, rows: Rows, paper: Rows) -> str:
    ours = f"{rows[name][column]:.1f}" if column in rows[name] else "–"
    return f"{ours} / {paper[name][column]:.1f}" if name in paper else ours
