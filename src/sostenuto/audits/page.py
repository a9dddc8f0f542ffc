"""The page of an audit: verdicts first, then a figure each, then how it was measured."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from sostenuto.audits.audit import AuditReport
from sostenuto.audits.base import AuditResult
from sostenuto.audits.verdicts import verdict
from sostenuto.checks import require
from sostenuto.data.files.atomic import write_atomically
from sostenuto.report.figures.canvas import SMALL
from sostenuto.report.judgment import Judgment
from sostenuto.report.numbers import count, duration, number
from sostenuto.report.page import compose
from sostenuto.report.palette import INK, LINE, MUTED, SERIES
from sostenuto.report.section import (
    Card,
    Cards,
    Cell,
    Column,
    Facts,
    Figures,
    Picture,
    Prose,
    Section,
    Table,
    Verdict,
)
from sostenuto.report.svg import house_style

WIDTH, HEIGHT = 430, 280
TITLES = {
    "memory": ("How long it remembers", "What one input still changes in the answer, by the steps since."),
    "lyapunov": ("Whether its state is stable", "How fast small changes of the state grow or fade along the data."),
    "certificates": ("What is proved", "Guarantees from the weights alone, beside what the data show."),
    "gradients": ("Whether gradients survive", "How much the loss depends on the state at each step."),
    "calibration": ("Whether its confidence is honest", "How often it is right, by how sure it says it is."),
    "noise": ("How it takes noise", "Accuracy while random noise on the input grows."),
    "attack": ("Whether it can be fooled", "Accuracy while an attacker may change the input more and more."),
    "perturbation": ("How firm its weights are", "The loss while the weights are changed, by chance and on purpose."),
    "curvature": ("How flat the minimum is", "Where the eigenvalues of the loss's second derivative lie."),
}
ORDER = {"bad": 0, "caution": 1, "unknown": 2, "good": 3}


def render(report: AuditReport, *, against: AuditReport | None = None, name: str = "", other: str = "") -> str:
    """Return the page as HTML; with ``against``, another model's answers stand beside."""
    title = name or report.model
    sections = [verdict_section(report)]
    if against is not None:
        sections.append(comparison_section(report, against, title, other or against.model))
    sections += audit_sections(report)
    sections.append(settings_section(report))
    return compose(
        name=title,
        subject=f"{report.model}, {count(report.num_parameters)} parameters",
        kind="audit of a model",
        judgment=judge(report),
        headline=headline(report),
        sections=sections,
    )


def save(
    report: AuditReport, path: str | Path, *, against: AuditReport | None = None, name: str = "", other: str = ""
) -> Path:
    """Write the page to ``path``, whole or not at all, and return the path."""
    target = Path(path)
    require(
        target.parent.is_dir(), "expected a folder to write the page into", f"got {target.parent}", "create it first"
    )
    return write_atomically(target, render(report, against=against, name=name, other=other))


def judge(report: AuditReport) -> Judgment:
    """Sum the verdicts up: the worst outcome, and how many of each there are."""
    verdicts = {name: verdict(name, result) for name, result in report.results().items()}
    if not verdicts:
        return Judgment("unknown", "Nothing measured", "No check could be asked of this model.")
    worst = min(verdicts.values(), key=lambda one: ORDER[one.outcome])
    bad = [TITLES[name][0].lower() for name, one in verdicts.items() if one.outcome in ("bad", "caution")]
    label = {"bad": "Look here", "caution": "With care", "unknown": "Nothing against it", "good": "Sound"}[
        worst.outcome
    ]
    said = f"{len(verdicts)} checks were made"
    said += f"; look at: {'; '.join(bad)}." if bad else ", and none speaks against the model."
    return Judgment(worst.outcome, label, said)


def headline(report: AuditReport) -> Cards:
    """Give the key numbers at the top of the page."""
    cards = []
    if report.memory is not None:
        memory = report.memory
        lasting = memory.half_time is None
        value = f"> {count(memory.horizon)}" if lasting else number(memory.half_time or 0.0, digits=3)
        cards.append(Card("memory half-life", value, "steps" if lasting else memory.time_unit))
    if report.noise is not None:
        cards.append(Card("accuracy", f"{100 * report.noise.clean_accuracy:.1f} %", "on the sequences audited"))
    if report.lyapunov is not None:
        cards.append(Card("largest exponent", number(report.lyapunov.largest, digits=3), "of small changes, per step"))
    cards.append(Card("parameters", count(report.num_parameters)))
    cards.append(Card("time", duration(report.seconds), f"{report.budget} audit of {count(report.num_sequences)}"))
    return Cards(tuple(cards))


def verdict_section(report: AuditReport) -> Section:
    """List every verdict, the worst first, and what could not be asked."""
    verdicts = [_named(name, verdict(name, result)) for name, result in report.results().items()]
    parts: list[Any] = sorted(verdicts, key=lambda one: ORDER[one.outcome])
    parts += [
        Verdict("unknown", "Not measured", f"{TITLES[name][0]}: {reason}") for name, reason in report.refused.items()
    ]
    return Section("Verdicts", "verdicts", tuple(parts))


def _named(name: str, found: Verdict) -> Verdict:
    """Put the question before its answer, for a list of many."""
    return Verdict(found.outcome, found.label, f"{TITLES[name][0]}. {found.text}")


def audit_sections(report: AuditReport) -> list[Section]:
    """Give a section a check: what was found, a figure, and how it was measured."""
    return [_section(name, result) for name, result in report.results().items()]


def comparison_section(report: AuditReport, other: AuditReport, name: str, other_name: str) -> Section:
    """Put two models' verdicts side by side."""
    rows = []
    found, theirs = report.results(), other.results()
    for check, (title, _) in TITLES.items():
        if check in found or check in theirs:
            cells = [_verdict_cell(check, results.get(check)) for results in (found, theirs)]
            rows.append((Cell(title), *cells))
    columns = (Column("question"), Column(name), Column(other_name))
    return Section("Side by side", "side-by-side", (Table("Two models, check by check", columns, tuple(rows)),))


def settings_section(report: AuditReport) -> Section:
    """Say how to get the same numbers again."""
    rows = [("model", report.model), ("budget", report.budget), ("seed", str(report.seed))]
    rows += [("sequences", count(report.num_sequences)), ("steps of the longest", count(report.num_steps))]
    rows += [(name, value) for name, value in sorted(report.environment.items())]
    return Section("How it was measured", "measured", (Facts("Settings and versions", tuple(rows)),))


def _verdict_cell(check: str, result: AuditResult | None) -> Cell:
    if result is None:
        return Cell("not measured")
    found = verdict(check, result)
    return Cell(found.label, note=found.text)


def _section(name: str, result: AuditResult) -> Section:
    title, caption = TITLES[name]
    picture = Picture(draw(result), f"{title}: {result.summary()}")
    method = f"{result.method} Seed {result.seed}."
    return Section(title, name, (verdict(name, result), Figures((picture,), caption), Prose(method, note=True)))


@house_style()
def draw(result: AuditResult) -> Figure:
    """Draw an answer in the page's own colors and letters."""
    settings: dict[Any, Any] = {
        "axes.prop_cycle": cycler(color=list(SERIES)),
        "axes.edgecolor": LINE,
        "axes.labelcolor": MUTED,
        "axes.labelsize": SMALL,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "text.color": INK,
        "legend.frameon": False,
        "legend.fontsize": SMALL,
        "axes.titlesize": SMALL,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72, layout="constrained")
        axes = figure.add_subplot()
        result.plot(axes)
        for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
            if scale == "log":
                axis.set_major_locator(LogLocator(numticks=6))
                axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, digits=2)))
                axis.set_minor_locator(NullLocator())
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure
