"""An audit as a section of a model card: Markdown with verdicts, numbers, thresholds and how to repeat them."""

from sostenuto.audits.audit import AuditReport
from sostenuto.audits.checks import all_checks
from sostenuto.report.numbers import count, number

MARKS = {"good": "✓ good: ", "caution": "! caution: ", "bad": "✗ bad: ", "unknown": "? "}


def model_card(report: AuditReport) -> str:
    """Write the card; texts are escaped for a Markdown table."""
    lines = [
        f"# Audit of {_plain(report.model)}",
        "",
        f"{count(report.num_parameters)} parameters, audited on {_plain(report.data) or 'the data given'} "
        f"({count(report.num_sequences)} sequences of up to {count(report.num_steps)} steps), {report.date}.",
        "",
        "| question | verdict | what was found | number | thresholds |",
        "|---|---|---|---|---|",
    ]
    for name, verdict in report.verdicts.items():
        value = "" if verdict.number is None else number(verdict.number)
        limits = ", ".join(f"{key} = {number(limit)}" for key, limit in verdict.thresholds.items())
        outcome = verdict.label if all_checks()[name].describes else MARKS[verdict.outcome] + verdict.label
        lines.append(f"| {all_checks()[name].title} | {outcome} | {_plain(verdict.text)} | {value} | {limits} |")
    for name, reason in report.refused.items():
        lines.append(f"| {all_checks()[name].title} | not measured | {_plain(reason)} | | |")
    lines += ["", *(f"- {_plain(note)}" for note in report.notes)] if report.notes else []
    lines += [
        "",
        "| to repeat | |",
        "|---|---|",
        f"| weights, SHA-256 | `{report.weights}` |",
        f"| data, checksum | `{report.checksum}` |",
        f"| budget, seed | {report.budget}, {report.seed} |",
        *(f"| {_plain(name)} | {_plain(value)} |" for name, value in sorted(report.environment.items())),
    ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Escape what would end a cell or mark up the text."""
    for sign in "\\|<>`*_[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
