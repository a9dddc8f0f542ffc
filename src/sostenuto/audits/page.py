"""The page of an audit: verdicts first, then a figure each, then how it was measured."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sostenuto.audits.audit import AuditReport
from sostenuto.audits.base import AuditResult
from sostenuto.audits.robustness.noise import NoiseAccuracy
from sostenuto.audits.robustness.noise_error import NoiseError
from sostenuto.audits.stability.lyapunov_spectrum import LyapunovSpectrum
from sostenuto.audits.verdicts import verdict
from sostenuto.checks import require
from sostenuto.data.files.atomic import write_atomically
from sostenuto.report.figures.plot import plotted
from sostenuto.report.judgment import Judgment
from sostenuto.report.numbers import count, counted, duration, number, with_unit
from sostenuto.report.page import compose
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

WIDTH, HEIGHT = 430, 280
TITLES = {
    "memory": ("How long does it remember?", "What one input still changes in the answer, by the steps since."),
    "lyapunov": ("Is its state stable?", "How fast small changes of the state grow or fade along the data."),
    "certificates": ("What is proved of its state?", "Guarantees from the weights alone, beside what the data show."),
    "gradients": ("Do gradients survive?", "How much the loss depends on the state at each step."),
    "calibration": ("Is its confidence honest?", "How often it is right, by how sure it says it is."),
    "generalization": ("Does it carry over?", "The sequences it was trained on, beside new ones."),
    "noise": ("How does it take noise?", "How right it stays while random noise on the input grows."),
    "attack": ("Can it be fooled?", "How right it stays while an attacker may change the input more and more."),
    "certified": ("How far is it proved safe?", "What is proved, and what an attack leaves: the truth lies between."),
    "perturbation": ("How firm are its weights?", "The loss while the weights are changed, by chance and on purpose."),
    "curvature": ("How flat is the minimum?", "Where the eigenvalues of the loss's second derivative lie."),
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
    on = f", on {report.data}" if report.data else ""
    return compose(
        name=title,
        subject=f"{report.model}, {count(report.num_parameters)} parameters{on}",
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
    said += f"; look at these: {' '.join(bad)}" if bad else ", and none speaks against the model."
    return Judgment(worst.outcome, label, said)


def headline(report: AuditReport) -> Cards:
    """Give the key numbers at the top of the page."""
    cards = []
    if report.memory is not None:
        memory = report.memory
        lasting = memory.half_time is None
        value = f"> {count(memory.horizon)}" if lasting else number(memory.half_time or 0.0, digits=3)
        cards.append(Card("memory half-life", value, "steps" if lasting else memory.time_unit))
    if isinstance(report.noise, NoiseAccuracy):
        cards.append(Card("accuracy", f"{100 * report.noise.clean_accuracy:.1f} %", "on the sequences audited"))
    elif isinstance(report.noise, NoiseError):
        error, spread = (
            with_unit(value, report.noise.unit) for value in (report.noise.clean_error, report.noise.spread)
        )
        cards.append(
            Card("error", error, f"root mean square, in the target's unit; always answering its mean gives {spread}")
        )
    if report.lyapunov is not None:
        cards.append(
            Card("growth of small changes", number(report.lyapunov.largest, digits=3), _growth(report.lyapunov))
        )
    cards.append(Card("parameters", count(report.num_parameters)))
    cards.append(
        Card("time", duration(report.seconds), f"{report.budget} audit of {counted(report.num_sequences, 'sequence')}")
    )
    return Cards(tuple(cards))


def _growth(spectrum: LyapunovSpectrum) -> str:
    doing = {"contracting": "they fade", "chaotic": "they grow", "neutral": "they neither grow nor fade"}
    return f"of the state, per step, as a logarithm: {doing[spectrum.verdict]}"


def verdict_section(report: AuditReport) -> Section:
    """List every verdict, the worst first, and what could not be asked."""
    verdicts = [_named(name, verdict(name, result)) for name, result in report.results().items()]
    parts: list[Any] = sorted(verdicts, key=lambda one: ORDER[one.outcome])
    parts += [
        Verdict("unknown", _unasked(reason), f"{TITLES[name][0]} {_sentence(reason)}")
        for name, reason in report.refused.items()
    ]
    return Section("Verdicts", "verdicts", tuple(parts))


def _unasked(reason: str) -> str:
    return "Does not apply" if reason.startswith("not applicable") else "Not measured"


def _sentence(reason: str) -> str:
    said = reason.removeprefix("not applicable: ")
    return f"{said[:1].upper()}{said[1:]}"


def _named(name: str, found: Verdict) -> Verdict:
    """Put the question before its answer, for a list of many."""
    return Verdict(found.outcome, found.label, f"{TITLES[name][0]} {found.text}")


def audit_sections(report: AuditReport) -> list[Section]:
    """Give a section a check: what was found, a figure, and how it was measured."""
    return [_section(name, result) for name, result in report.results().items()]


def comparison_section(report: AuditReport, other: AuditReport, name: str, other_name: str) -> Section:
    """Put two models' verdicts side by side."""
    rows = []
    found, theirs = report.results(), other.results()
    for check, (title, _) in TITLES.items():
        if check in found or check in theirs:
            cells = [_verdict_cell(check, one) for one in (report, other)]
            rows.append((Cell(title), *cells))
    columns = (Column("question"), Column(name), Column(other_name))
    table = Table("Two models, check by check", columns, tuple(rows))
    remarks = (Prose(remark) for remark in differences(report, other))
    return Section("Side by side", "side-by-side", (*remarks, table))


def differences(report: AuditReport, other: AuditReport) -> list[str]:
    """Say what a reader must know before comparing two reports: other data, another task, another budget."""
    said = []
    if report.checksum != other.checksum:
        named = f": {report.data} and {other.data}" if report.data and other.data else ""
        said.append(
            f"The two were audited on different data{named}. Verdicts can be compared, numbers only with care; "
            "name one file or data set to audit both on it."
        )
    if report.task != other.task:
        kinds = {"classification": "answers with classes", "regression": "answers with numbers", "": "had no targets"}
        said.append(
            f"The first {kinds[report.task]}, the second {kinds[other.task]}, so what they lose under noise and attack "
            "is not the same quantity."
        )
    if (report.budget, report.seed) != (other.budget, other.seed):
        budgets = f"{report.budget}, seed {report.seed}, and {other.budget}, seed {other.seed}"
        said.append(f"The budgets differ ({budgets}), so part of a difference may come from that.")
    return said


def settings_section(report: AuditReport) -> Section:
    """Say how to get the same numbers again."""
    rows = [("model", report.model), ("budget", report.budget), ("seed", str(report.seed))]
    rows += [("data", report.data)] if report.data else []
    rows += [("checksum of the data", report.checksum)] if report.checksum else []
    rows += [("sequences", count(report.num_sequences)), ("steps of the longest", count(report.num_steps))]
    rows += [(name, value) for name, value in sorted(report.environment.items())]
    return Section("How it was measured", "measured", (Facts("Settings and versions", tuple(rows)),))


def _verdict_cell(check: str, report: AuditReport) -> Cell:
    result = report.results().get(check)
    if result is None:
        reason = report.refused.get(check, "")
        return Cell(_unasked(reason).lower(), note=reason or "It was not asked.")
    found = verdict(check, result)
    return Cell(found.label, note=found.text)


def _section(name: str, result: AuditResult) -> Section:
    title, caption = TITLES[name]
    picture = Picture(draw(result), f"{title} {result.summary()}")
    method = f"{result.method} Seed {result.seed}."
    return Section(title, name, (verdict(name, result), Figures((picture,), caption), Prose(method, note=True)))


def draw(result: AuditResult) -> Figure:
    """Draw an answer in the page's own colors and letters."""
    return plotted(result.plot, width=WIDTH, height=HEIGHT)
