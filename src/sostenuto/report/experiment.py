"""The page of an experiment: its numbers beside the paper's with a verdict each, figures, how it was measured."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from sostenuto.report.judgment import Judgment
from sostenuto.report.numbers import duration, number
from sostenuto.report.page import compose
from sostenuto.report.section import (
    Card,
    Cards,
    Cell,
    Column,
    Facts,
    Figures,
    Outcome,
    Part,
    Picture,
    Prose,
    Section,
    Table,
    Verdict,
)
from sostenuto.report.text import shorten
from sostenuto.results import ExperimentNumber, ExperimentResult

OUTCOMES: dict[str, Outcome] = {
    "reproduced": "good",
    "better": "good",
    "law holds": "good",
    "worse": "bad",
    "law fails": "bad",
    "differs": "caution",
    "data missing": "unknown",
    "stand-in data": "unknown",
    "not compared": "unknown",
    "measured": "unknown",
    "not measured": "unknown",
    "undecided": "caution",
    "not judged": "unknown",
    "not run": "unknown",
}
PROTOCOLS = {
    "paper": "the paper's protocol",
    "reduced": "the paper's protocol with fewer runs, epochs or points",
    "ours": "our own recipe, not the paper's",
    "quick": "a quick run that shows how the experiment works",
}
_NUMBER = re.compile(r"[-+−]?[\d.,]*\d(e[-+]?\d+)?( ± [\d.]+)?( %)?")
_SENTENCES = {
    "reproduced": "The paper's numbers came out again.",
    "better": "The paper's numbers came out again or were bettered.",
    "law holds": "What the paper states was seen.",
    "worse": "At least one number falls short of the paper's.",
    "law fails": "At least one statement of the paper was not seen.",
    "differs": "At least one number lies away from the paper's.",
    "data missing": "The data this experiment needs are not on this machine, so nothing is compared with the paper.",
    "stand-in data": "This run read stand-in data, not the paper's, and speaks neither for nor against the paper.",
    "not compared": "This protocol is too small to compare its numbers with the paper's.",
    "measured": "The paper prints no number to compare with.",
    "not measured": "Nothing could be measured here.",
    "undecided": "At least one difference is no larger than what seeds explain, or rests on one seed.",
    "not judged": "At least one comparison would not be fair, and is not made.",
    "not run": "At least one row has not been run.",
}


@dataclass(frozen=True)
class Drawing:
    """A figure of an experiment, its name and its caption."""

    name: str
    figure: Figure
    caption: str = ""


def render(result: ExperimentResult, drawings: Sequence[Drawing] = ()) -> str:
    """Return the page of an experiment as HTML."""
    sections = [_number_section(result)]
    if drawings:
        figures = tuple(_figure(drawing, result.protocol) for drawing in drawings)
        sections.append(Section("Figures", "figures", figures))
    sections += [_provenance_section(result), _measured_section(result)]
    return compose(
        name=f"{result.name}: {result.title}",
        subject=f"{result.paper}, {result.protocol} protocol: {PROTOCOLS.get(result.protocol, result.protocol)}",
        kind="experiment",
        judgment=Judgment(OUTCOMES[result.verdict], result.verdict.capitalize(), _sentence(result), result.notes),
        headline=_cards(result),
        sections=sections,
    )


def _figure(drawing: Drawing, protocol: str) -> Figures:
    caption = drawing.caption
    if protocol == "quick":
        caption = f"Quick run, not the experiment itself. {caption}".strip()
    picture = Picture(drawing.figure, f"{_ended(drawing.name)} {caption}".strip(), drawing.name)
    return Figures((picture,), caption)


def judged(item: ExperimentNumber) -> str:
    """Write the verdict, and why where nothing was decided.

    >>> judged(ExperimentNumber("accuracy", "undecided", why="one seed"))
    'undecided: one seed'
    """
    return f"{item.verdict}: {item.why}" if item.why else item.verdict


def _sentence(result: ExperimentResult) -> str:
    """Say what the verdict means, and of what it leaves out (suspect numbers, quoted baselines) what fell short."""
    said = _SENTENCES[result.verdict]
    short = sum(OUTCOMES[item.verdict] == "bad" for item in result.numbers)
    if OUTCOMES[result.verdict] != "good" or not short:
        return said
    return f"{said} Of what the verdict leaves out, {short} fell short."


def ours(item: ExperimentNumber) -> str:
    """Write what was measured, with its spread.

    >>> ours(ExperimentNumber("accuracy", "better", value=98.5, spread=0.1, count=3, unit="%"))
    '98.5 ± 0.1 % (3 runs)'
    """
    if item.value is None:
        return item.evidence or "–"
    spread = "" if item.spread is None else f" ± {number(item.spread, digits=2)}"
    runs = f" ({item.count} runs)" if item.count > 1 else ""
    return f"{number(item.value)}{spread}{f' {item.unit}' if item.unit else ''}{runs}"


def evaluations(result: ExperimentResult) -> str:
    """Say how often models were scored on the test part.

    >>> result = ExperimentResult("a", "A", "a", "", "paper", "better", "", 0, 0.0, ())
    >>> evaluations(result)
    'not recorded'
    """
    counted = result.test_evaluations
    if not counted:
        return "not recorded"
    shown = f", {counted['shown']} of them behind the numbers here" if "shown" in counted else ""
    return f"{counted['made']}{shown}"


def theirs(item: ExperimentNumber) -> str:
    """Write what the paper says."""
    if item.law:
        return item.law
    return "–" if item.expected is None else f"{number(item.expected)}{f' {item.unit}' if item.unit else ''}"


def _cards(result: ExperimentResult) -> Cards:
    verdicts = [item.verdict for item in result.numbers]
    counts = [(verdict, verdicts.count(verdict)) for verdict in OUTCOMES if verdict in verdicts]
    cards = [Card(verdict, str(total)) for verdict, total in counts]
    return Cards((*cards, Card("time", duration(result.seconds), result.environment.get("device", ""))))


def _number_section(result: ExperimentResult) -> Section:
    # Set as a number, a verdict is not broken over lines.
    what = f"The experiment itself: {result.what}" if result.protocol == "quick" else result.what
    columns = (Column("quantity"), Column("here"), Column("paper"), Column("verdict", numeric=True))
    rows = tuple(
        (Cell(item.name, note=item.remark), Cell(ours(item), link=f"how-{place}"), Cell(theirs(item)), _verdict(item))
        for place, item in enumerate(result.numbers, start=1)
    )
    failed = [item for item in result.numbers if OUTCOMES[item.verdict] == "bad"]
    verdicts = tuple(
        Verdict("bad", item.verdict, _ended(f"{item.name}: {ours(item)}; paper: {theirs(item)}")) for item in failed
    )
    parts: list[Part] = [*_banner(result), Prose(what), *verdicts, Table("Here and in the paper", columns, rows)]
    for table in result.tables:
        cells = tuple(tuple(Cell(text) for text in row) for row in table.rows)
        columns = tuple(
            Column(name, numeric=_are_numbers([row[index] for row in table.rows]))
            for index, name in enumerate(table.columns)
        )
        parts.append(Table(table.caption, columns, cells))
    return Section("Numbers", "numbers", tuple(parts))


def _verdict(item: ExperimentNumber) -> Cell:
    return Cell(item.verdict, note=item.why)


def _banner(result: ExperimentResult) -> list[Part]:
    if result.protocol != "quick":
        return []
    text = "Small models on small data, for a minute: no number of this page is the experiment's, and no law is judged."
    recipe = f"{result.recipe[:1].upper()}{result.recipe[1:]}"
    return [Verdict("caution", "Quick run", f"{text} {_ended(recipe)}".strip())]


def _provenance_section(result: ExperimentResult) -> Section:
    """Say of each number how it came about: recipe, command, commit, seeds and spread."""
    columns = tuple(map(Column, ("quantity", "recipe", "seeds", "spread", "command", "commit")))
    rows = tuple(
        (
            Cell(item.name, anchor=f"how-{place}"),
            Cell(item.recipe or result.recipe or "not recorded"),
            Cell(", ".join(map(str, item.seeds)) or f"from {result.seed}"),
            Cell("–" if item.value is None else _spread(item)),
            Cell(result.command or "not recorded"),
            Cell(result.commit, note=f"code {result.code}"),
        )
        for place, item in enumerate(result.numbers, start=1)
    )
    return Section("Where each number comes from", "provenance", (Table("Provenance", columns, rows),))


def _spread(item: ExperimentNumber) -> str:
    if item.count < 2:
        return "one repetition"
    return f"{item.count} repetitions" + ("" if item.spread is None else f", deviation {number(item.spread, digits=2)}")


def _are_numbers(values: Sequence[str]) -> bool:
    """Whether a column has numbers alone (or dashes for want of one), which are set to the right and never broken."""
    return bool(values) and all(_NUMBER.fullmatch(value) or value == "–" for value in values)


def _ended(text: str) -> str:
    """Close a sentence that may have come with its own full stop, as laws do."""
    return text if text.endswith(".") else f"{text}."


def _measured_section(result: ExperimentResult) -> Section:
    rows = [("protocol", result.protocol), ("recipe", result.recipe or "not recorded"), ("seed", str(result.seed))]
    rows += [("date", result.date), ("seconds", duration(result.seconds))]
    rows += [("device", result.environment.get("device", "not recorded")), ("command", result.command)]
    rows += [("commit", result.commit), ("code", result.code), ("evaluations on the test part", evaluations(result))]
    rows += [(f"checksum of {name}", checksum) for name, checksum in result.data.items()]
    settings = tuple((name, shorten(str(value), 300)) for name, value in result.settings.items())
    parts = [Facts("Run", tuple(rows)), Facts("Settings", settings)]
    parts.append(Facts("Versions", tuple(sorted(result.environment.items()))))
    return Section("How it was measured", "measured", tuple(part for part in parts if part.rows))
