"""The table of attacks in ``docs/reliability.md``, written from ``results/reliability/attacks.json``."""

import json
from pathlib import Path

BEGIN, END = "<!-- attacks: written by make attack -->", "<!-- end of attacks -->"


def table(result: Path) -> str:
    """Lay the stored outcomes out as a table."""
    stored = json.loads(result.read_text(encoding="utf-8"))
    rows = ["| attack | promise | cases | outcomes | broken promises |", "|---|---|---|---|---|"]
    for one in stored["attacks"].values():
        outcomes = "; ".join(f"{name}: {count:,}" for name, count in one["outcomes"].items())
        rows.append(f"| {one['attack']} | {one['promise']} | {one['cases']:,} | {outcomes} | {one['failed']:,} |")
    minutes = sum(one["seconds"] for one in stored["attacks"].values()) / 60
    dates = sorted({one["date"] for one in stored["attacks"].values()})
    kept = ("device", "system", "python", "torch", "numpy")
    machine = ", ".join(f"{name} {stored['environment'][name]}" for name in kept)
    rows += ["", f"Run in {minutes:.0f} minutes on {' and '.join(dates)} ({machine}), one thread, seeds in the file."]
    return "\n".join(rows)


def write_table(result: Path, page: Path) -> None:
    """Put the table between the marks of the page."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{table(result)}\n\n{END}{after}", encoding="utf-8")
