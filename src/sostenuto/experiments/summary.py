"""All verdicts on one page, failures first, and a page per stored result; ``docs/conf.py`` and a test call this."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from sostenuto.experiments.catalog import find, names
from sostenuto.experiments.expectation import NOT_RUN, ORDER, STANDARD_ERRORS
from sostenuto.experiments.stored import read_result, reruns
from sostenuto.report.experiment import evaluations, judged, ours, theirs
from sostenuto.report.numbers import number
from sostenuto.results import ExperimentNumber, ExperimentResult

BEGIN, END = "<!-- verdicts: written by python -m sostenuto.experiments.summary -->", "<!-- end of verdicts -->"
TRAINED = (
    *("erichson2021/table-1", "erichson2021/table-2", "rusch2021/table-1", "rusch2021/table-2", "rusch2021/table-5"),
    *("rusch2021/table-8", "rusch2021/task-fsdd", "wang2024/table-1"),
)
"""Items whose numbers are accuracies of trained models."""
LANDS = ("outside", "otherwise", "within", "the same", "one run", "alike")


def stored_results(folder: Path) -> list[ExperimentResult]:
    """Read every stored result: failures first, then by paper and item."""
    results = [read_result(path) for path in sorted(folder.glob("*.json"))]
    place = {name: index for index, name in enumerate(names())}
    return sorted(results, key=lambda result: (ORDER.index(result.verdict), place[result.name], result.protocol))


def verdicts(results: Sequence[ExperimentResult]) -> str:
    """Write the table of all verdicts, and of all items that have none."""
    rows = ["| item | protocol | verdict | decided by |", "|---|---|---|---|"]
    rows += [f"| {_link(result)} | {result.protocol} | {result.verdict} | {_reason(result)} |" for result in results]
    counts = ", ".join(f"{verdict} {total}" for verdict, total in _counts(results))
    missing = [name for name in names() if name not in {result.name for result in results}]
    said = f"{len(results)} stored results of {len(names())} items: {counts}. No stored result: {', '.join(missing)}."
    return "\n".join([said, "", *rows])


def accuracies(results: Sequence[ExperimentResult]) -> str:
    """Write the table of trained models' accuracies: the plain comparison first, rows with views named so."""
    rows = ["| item | row | paper | here | verdict | recipe |", "|---|---|---|---|---|---|"]
    for result in sorted(results, key=lambda result: names().index(result.name)):
        for item in result.numbers if result.name in TRAINED else ():
            if item.unit == "%" and not re.search("deviation|least|largest", item.name):
                cells = (item.name, theirs(item), ours(item), judged(item), item.recipe or "–")
                rows.append(f"| {_link(result)} | {' | '.join(map(_plain, cells))} |")
    return "\n".join(rows)


def page(result: ExperimentResult, again: Sequence[ExperimentResult] = ()) -> str:
    """Write a result as a page: every number with its recipe, command, commit, seeds and spread; then its reruns."""
    head = ["---", "orphan: true", "---", "", f"# {result.name}, {result.protocol} protocol: {result.verdict}", ""]
    head += [f"{_plain(result.title)}. {_plain(result.what)}", ""]
    facts = {
        "recipe": result.recipe,
        "command": f"`{result.command}`",
        "commit": result.commit,
        "code": result.code,
        "device": result.environment.get("device", "not recorded"),
        "date": result.date,
        "seconds": f"{result.seconds:.0f}",
        "evaluations on the test part": evaluations(result),
        "data": "; ".join(f"{name}: {checksum}" for name, checksum in result.data.items()) or "generated",
    }
    table = ["| | |", "|---|---|", *(f"| {name} | {_plain(value)} |" for name, value in facts.items()), ""]
    lines = [
        "## Numbers",
        "",
        "| quantity | here | paper | verdict | spread | seeds | recipe |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(number, result) for number in result.numbers]
    notes = ["", "## Notes", "", *(f"- {_plain(note)}" for note in result.notes)] if result.notes else []
    about = ["", "## What it shows, and what was found", "", find(result.name).about.strip()]
    return "\n".join([*head, *table, *lines, *_rerun_table(result, again), *notes, *about, ""])


def stem(result: ExperimentResult) -> str:
    """Name a result's page."""
    return f"{result.name.replace('/', '_')}_{result.protocol}"


def write_pages(results: Path, folder: Path) -> None:
    """Write the page of every stored result into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in stored_results(results):
        (folder / f"{stem(result)}.md").write_text(page(result, reruns(result, results)), encoding="utf-8")


def replaced(text: str, folder: Path) -> str:
    """Return a page of the documentation with its tables written anew from a folder of results."""
    results = stored_results(folder)
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    tables = (verdicts(results), f"### Accuracies\n\n{accuracies(results)}", rerun_summary(results, folder))
    return "\n\n".join([text[:begin], *filter(None, tables), text[end:]])


def main() -> None:
    """Write the table of verdicts into ``docs/experiments.md`` of this checkout."""
    root = Path(__file__).parents[3]
    path = root / "docs" / "experiments.md"
    written = replaced(path.read_text(encoding="utf-8"), root / "results" / "experiments")
    path.write_text(written, encoding="utf-8")


def _link(result: ExperimentResult) -> str:
    return f"[{result.name}](results/{stem(result)}.md)"


def rerun_summary(results: Sequence[ExperimentResult], folder: Path) -> str:
    """Write the table of reruns with other seeds: how many numbers land where the stored ones are."""
    rows = ["| item | seeds | verdict | numbers | laws |", "|---|---|---|---|---|"]
    for result in sorted(results, key=lambda result: names().index(result.name)):
        again = reruns(result, folder)
        outcomes: dict[str, list[str]] = {"number": [], "law": []}
        for run in again:
            for item, other in zip(result.numbers, run.numbers, strict=True):
                outcomes["law" if item.law else "number"].append(lands(item, other))
        told = [
            ", ".join(f"{each.count(kind)} {kind}" for kind in LANDS if kind in each) or "–"
            for each in outcomes.values()
        ]
        if again:
            seeds = ", ".join(str(item.seed) for item in (result, *again))
            said = " · ".join(dict.fromkeys(item.verdict for item in (result, *again)))
            rows.append(f"| {_link(result)} | {seeds} | {said} | {' | '.join(told)} |")
    return "\n".join(["### Again, with other seeds", "", *rows]) if len(rows) > 2 else ""


def lands(one: ExperimentNumber, other: ExperimentNumber) -> str:
    """Return whether a rerun's number is the stored one's within two standard errors, or its law came out alike.

    >>> from dataclasses import replace
    >>> stored = ExperimentNumber("accuracy", "measured", value=98.0, spread=0.2, count=4)
    >>> others = [replace(stored, value=98.2), replace(stored, value=98.5), replace(stored, value=98.2, count=1)]
    >>> [lands(stored, other) for other in others]
    ['within', 'outside', 'one run']
    """
    if one.value is None or other.value is None:
        return "alike" if (one.law and one.verdict == other.verdict) or not one.law else "otherwise"
    if one.value == other.value:
        return "the same"
    if one.spread is None or other.spread is None or min(one.count, other.count) < 2:
        return "one run"
    error = math.hypot(one.spread / math.sqrt(one.count), other.spread / math.sqrt(other.count))
    return "within" if abs(one.value - other.value) <= STANDARD_ERRORS * error else "outside"


def _rerun_table(result: ExperimentResult, again: Sequence[ExperimentResult]) -> list[str]:
    """Lay the numbers of reruns beside the stored ones."""
    if not again:
        return []
    head = ("quantity", f"seed {result.seed}", *(f"seed {run.seed}" for run in again), "all of them")
    lines = ["", "## Again, with other seeds", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for item in result.numbers:
        others = [{each.name: each for each in run.numbers}[item.name] for run in again]
        told = [f"{ours(each) if each.value is not None else each.verdict}: {lands(item, each)}" for each in others]
        first = ours(item) if item.value is not None else item.verdict
        values = [each.value for each in (item, *others) if each.value is not None]
        whole = f"{number(fmean(values))} ± {number(stdev(values), digits=2)}" if len(values) > 1 else "–"
        lines.append(f"| {' | '.join(map(_plain, (item.name, first, *told, whole)))} |")
    facts = "; ".join(f"`{run.command}` at {run.commit}" for run in again)
    return [*lines, "", f"Within: two standard errors of the difference. {facts}."]


def _counts(results: Sequence[ExperimentResult]) -> list[tuple[str, int]]:
    verdicts = [result.verdict for result in results]
    return [(verdict, verdicts.count(verdict)) for verdict in ORDER if verdict in verdicts]


def _reason(result: ExperimentResult) -> str:
    """Say which numbers gave the whole its verdict, the first two of them, and what was seen."""
    deciding = [number for number in result.numbers if number.verdict == result.verdict and number.headline]
    told = [_told(number) for number in deciding[:2]]
    more = f" and {len(deciding) - 2} more" if len(deciding) > 2 else ""
    return "; ".join(told) + more if told else "–"


def _told(item: ExperimentNumber) -> str:
    seen = item.evidence if item.value is None else f"{ours(item)}, paper {theirs(item)}"
    seen = seen if len(seen) <= 90 else f"{seen[:90].rsplit(' ', 1)[0]} …"
    why = f" ({item.why})" if item.why else ""
    return _plain(f"{item.name}{why}: {seen}")


def _row(item: ExperimentNumber, result: ExperimentResult) -> str:
    spread = "–" if item.spread is None else f"{number(item.spread, digits=2)} over {item.count}"
    seeds = ", ".join(map(str, item.seeds)) or "–"
    cells = (item.name, ours(item), theirs(item), judged(item), spread, seeds, _own_recipe(item, result))
    return f"| {' | '.join(map(_plain, cells))} |"


def _own_recipe(item: ExperimentNumber, result: ExperimentResult) -> str:
    if item.verdict == NOT_RUN:
        return "–"
    return "as above" if item.recipe in ("", result.recipe) else item.recipe


def _plain(text: str) -> str:
    """Keep a text from being read as Markdown's tables, links or mathematics."""
    return re.sub(r"([|*_$<\[\]])", r"\\\1", " ".join(text.split())) if "`" not in text else text


if __name__ == "__main__":
    main()
