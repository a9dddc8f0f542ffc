"""The page of an audit: verdicts first, then a figure each, then how it was measured."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sostenuto.audits.audit import SKILL, AuditReport, CheckVerdict
from sostenuto.audits.base import AuditResult, points
from sostenuto.audits.batches import score_words
from sostenuto.audits.checks import all_checks
from sostenuto.audits.differences import paired_differences
from sostenuto.audits.memory.data_memory import DataMemory
from sostenuto.checks import require
from sostenuto.data.files.atomic import write_atomically
from sostenuto.report.figures.plot import plotted
from sostenuto.report.judgment import Judgment
from sostenuto.report.numbers import count, counted, duration, number, percent
from sostenuto.report.page import compose
from sostenuto.report.section import (
    Card,
    Cards,
    Cell,
    Column,
    Columns,
    Facts,
    Figures,
    Picture,
    Prose,
    Section,
    Table,
    Verdict,
)

WIDTH, HEIGHT = 430, 280
FIRST = "memory"
"""The check that the page shows first."""
STATE_CAPTION = (
    "The state: how much of the difference of two states is left while both read the same, in the Euclidean norm, "
    "measured on pairs of the data (median and range) between what is proved for every input. The answers: what is "
    "left of the input's effect on them, by its age."
)
_SENTENCE_END = re.compile(r"(?<=[.:]) (?=[A-Z])")
ORDER = {"bad": 0, "caution": 1, "unknown": 2, "good": 3}


def render(report: AuditReport, *, against: AuditReport | None = None, name: str = "", other: str = "") -> str:
    """Return the page as HTML; with ``against``, another model's answers stand beside."""
    title = name or report.model
    answers = {section.anchor: section for section in audit_sections(report)}
    # The first picture of the page is how long the model remembers.
    sections = [answers.pop(FIRST)] if FIRST in answers else []
    sections.append(verdict_section(report))
    if against is not None:
        sections.append(comparison_section(report, against, title, other or against.model))
    sections += answers.values()
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
    verdicts = {name: one for name, one in report.verdicts.items() if not all_checks()[name].describes}
    if not verdicts:
        return Judgment("unknown", "Nothing measured", "No check could be run on this model.")
    worst = min(verdicts.values(), key=lambda one: ORDER[one.outcome])
    bad = [all_checks()[name].title.lower() for name, one in verdicts.items() if one.outcome in ("bad", "caution")]
    label = {"bad": "Look here", "caution": "With care", "unknown": "Not all decided", "good": "Sound"}[worst.outcome]
    said = f"{counted(len(verdicts), 'check')} {'was' if len(verdicts) == 1 else 'were'} made"
    if worst.outcome == "good" and SKILL not in verdicts:
        return Judgment("unknown", "In part", f"{said}; whether the model is better than guessing was not asked.")
    said += f"; look at these: {' '.join(bad)}" if bad else ", and none speaks against the model."
    return Judgment(worst.outcome, label, said)


def headline(report: AuditReport) -> Cards:
    """Give the key numbers at the top of the page."""
    cards = []
    if report.memory is not None:
        memory = report.memory
        lasting = memory.half_time is None
        value = f"> {count(memory.horizon)}" if lasting else number(memory.half_time or 0.0, digits=3)
        unit = "steps" if lasting else memory.time_unit
        cards.append(Card("memory half-life", *(("undecided", "") if memory.hidden else (value, unit))))
    if report.skill is not None:
        found = report.skill
        score, low, high, guess = (
            score_words(found.measure, value, found.unit) for value in (found.score, found.low, found.high, found.guess)
        )
        cards.append(Card(found.measure, score, f"{low} to {high} in 19 of 20 repetitions; a guess reaches {guess}"))
    if report.lyapunov is not None:
        told = f"of a small change of the state, in a step, as a logarithm: {report.lyapunov.course}"
        cards.append(Card("growth", number(report.lyapunov.largest, digits=3), told))
    return Cards(tuple(cards))


def verdict_section(report: AuditReport) -> Section:
    """List every verdict, the worst first, and what could not be measured."""
    parts: list[Any] = sorted(
        (_shown(all_checks()[name].title, one) for name, one in report.verdicts.items()),
        key=lambda one: ORDER[one.outcome],
    )
    parts += [
        Verdict("unknown", _unasked(reason), f"{all_checks()[name].title} {_sentence(reason)}")
        for name, reason in report.refused.items()
    ]
    middle = (len(parts) + 1) // 2
    if middle == len(parts):
        return Section("Verdicts", "verdicts", tuple(parts))
    return Section("Verdicts", "verdicts", (Columns(tuple(parts[:middle]), tuple(parts[middle:])),))


def _shown(title: str, verdict: CheckVerdict) -> Verdict:
    """Put the question before the first sentence of its answer, for a list of many."""
    return Verdict(
        verdict.outcome, verdict.label, f"{title} {_SENTENCE_END.split(verdict.text, maxsplit=1)[0]}".strip()
    )


def _unasked(reason: str) -> str:
    return "Does not apply" if reason.startswith("not applicable") else "Not measured"


def _sentence(reason: str) -> str:
    said = reason.removeprefix("not applicable: ")
    return f"{said[:1].upper()}{said[1:]}"


def audit_sections(report: AuditReport) -> list[Section]:
    """Give a section a check: what was found, a figure, and how it was measured."""
    return [_section(report, name, result) for name, result in report.results.items()]


def comparison_section(report: AuditReport, other: AuditReport, name: str, other_name: str) -> Section:
    """Put two models' verdicts side by side."""
    rows = []
    for check in all_checks().values():
        if check.name in report.results or check.name in other.results:
            rows.append((Cell(check.title), *(_verdict_cell(check.name, one) for one in (report, other))))
    columns = (Column("question"), Column(name), Column(other_name))
    table = Table("Two models, check by check", columns, tuple(rows))
    remarks = (Prose(remark) for remark in differences(report, other))
    return Section("Side by side", "side-by-side", (*remarks, *_tested(report, other, name, other_name), table))


def _tested(report: AuditReport, other: AuditReport, name: str, other_name: str) -> tuple[Table | Prose, ...]:
    """Say which scores differ by more than chance, on the same sequences."""
    found = paired_differences(report, other, seed=report.seed)
    if not found:
        return (Prose("No score was measured on the same sequences for both, so no difference is tested.", note=True),)
    shares = report.task == "classification"
    what = "accuracy" if shares else "mean squared error"
    conditions = {"skill": "as they are", "noise": "under the strongest noise", "attack": "under the strongest attack"}

    def shown(value: float) -> str:
        return percent(value) if shares else number(value, digits=3)

    def moved(value: float) -> str:
        return points(value) if shares else number(value, digits=3)

    rows = tuple(
        (
            Cell(f"{what}, {conditions[one.check]}", note=f"{counted(one.sequences, 'sequence')}, {one.test}"),
            Cell(shown(one.first)),
            Cell(shown(one.second)),
            Cell(moved(one.difference), note=f"{moved(one.low)} to {moved(one.high)}"),
            Cell(number(one.adjusted, digits=2), note="more than chance" if one.significant else "may be chance"),
        )
        for one in found
    )
    columns = (
        Column("on the same sequences"),
        Column(name, numeric=True),
        Column(other_name, numeric=True),
        Column("difference", "points, 95 % interval" if shares else "95 % interval", numeric=True),
        Column("p", "after Holm's correction", numeric=True),
    )
    return (Table("Which differences are more than chance", columns, rows),)


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
    rows += [("weights, SHA-256", report.weights)] if report.weights else []
    rows += [("date", report.date)] if report.date else []
    rows += [("how the model was read", note) for note in report.notes]
    rows += [("parameters", count(report.num_parameters)), ("sequences", count(report.num_sequences))]
    rows += [("steps of the longest", count(report.num_steps)), ("took", duration(report.seconds))]
    facts = Facts("Settings", tuple(rows)), Facts("Versions", tuple(sorted(report.environment.items())))
    return Section("How it was measured", "measured", (Columns(facts[:1], facts[1:]),))


def _verdict_cell(check: str, report: AuditReport) -> Cell:
    verdict = report.verdicts.get(check)
    if verdict is None:
        reason = report.refused.get(check, "")
        return Cell(_unasked(reason).lower(), note=reason or "It was not run.")
    return Cell(verdict.label, note=verdict.text)


def _section(report: AuditReport, name: str, result: AuditResult) -> Section:
    check, verdict = all_checks()[name], report.verdicts[name]
    limits = ", ".join(f"{key} {number(limit)}" for key, limit in verdict.thresholds.items())
    method = f"{result.method} Seed {result.seed}." + (f" Thresholds: {limits}." if limits else "")
    shown, how = Verdict(verdict.outcome, verdict.label, verdict.text), Prose(method, note=True)
    picture = Picture(draw(result), f"{check.title} {result.summary()}")
    lead = (Prose(result.plainly()),) if isinstance(result, DataMemory) else ()
    state = result.proved.state if isinstance(result, DataMemory) and result.proved is not None else None
    if state is None:
        columns = Columns((*lead, shown, how), (Figures((picture,), check.caption),))
        return Section(check.title, name, (columns,))
    held = Picture(plotted(state.plot, width=WIDTH, height=HEIGHT), state.summary(), "What the state still holds")
    pictures = (held, replace(picture, heading="What the answers still rest on"))
    return Section(check.title, name, (*lead, Figures(pictures, STATE_CAPTION), Columns((shown,), (how,))))


def draw(result: AuditResult) -> Figure:
    """Draw an answer in the page's own colors and letters."""
    return plotted(result.plot, width=WIDTH, height=HEIGHT)
