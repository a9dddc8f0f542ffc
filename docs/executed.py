"""Sphinx extension: the blocks of a page run when it is read, and what they print and draw stands below them.

Blocks run in order in one fresh process, in an empty folder, and share their names. A comment before a block may say
``<!-- run -->`` (a ``console`` block to run; one of Python always runs), ``<!-- needs PACKAGE -->`` or
``<!-- not run: REASON -->``. A block that fails fails the build; ``SOSTENUTO_DOCS_RUN=0`` runs none, to look at text
alone. Pages of `NOTEBOOKS` can be downloaded as notebooks.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>run|needs (?P<needs>\w+)|not run: (?P<reason>[^>]+)) -->\n)?"
    r"```(?P<language>python|console)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NOTEBOOKS = re.compile(r"tutorials/(?!index$)")
FOLDER = "_executed"
LINES = 60
SECONDS = 900


def run_page(app, name, source):
    """Replace a page's text by the same with outputs."""
    text = source[0]
    blocks = list(BLOCK.finditer(text))
    if os.environ.get("SOSTENUTO_DOCS_RUN") == "0" or not any(runs(block) for block in blocks):
        return
    place = Path(app.srcdir) / FOLDER
    stem = name.replace("/", "-")
    outputs = run_blocks(name, [as_job(block) for block in blocks], place, stem)
    source[0] = shown(text, blocks, outputs, "../" * name.count("/") + FOLDER)
    if NOTEBOOKS.match(name):
        notebook = as_notebook(text, blocks, outputs, place)
        (place / f"{stem}.ipynb").write_text(json.dumps(notebook, indent=1), encoding="utf-8")
        source[0] += f"\n\n{{download}}`This page as a notebook <../{FOLDER}/{stem}.ipynb>`\n"


def runs(block):
    """Say whether a block is run."""
    if block["reason"] or (block["language"] == "console" and block["mark"] != "run"):
        return False
    return not (block["needs"] and importlib.util.find_spec(block["needs"]) is None)


def as_job(block):
    """Say how to run a block: a language and its code, or None."""
    return [block["language"], block["code"]] if runs(block) else None


def run_blocks(name, jobs, place, stem):
    """Run the blocks of a page in a process of their own; give what each printed and the figures it drew."""
    place.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    settings = {"PATH": path, "MPLBACKEND": "agg", "COLUMNS": "110", "PYTHONIOENCODING": "utf-8"}
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **settings}
    runner = Path(__file__).with_name("run_blocks.py")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        work = Path(folder, "work")
        work.mkdir()
        done = subprocess.run(
            [sys.executable, str(runner), str(result), str(place / stem)],
            input=json.dumps(jobs),
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=work,
            env=environment,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode or not result.exists():
            raise RuntimeError(f"{name}: a block failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return json.loads(result.read_text(encoding="utf-8"))


def shown(text, blocks, outputs, folder):
    """Return a page's text with what each block printed and drew below it."""
    parts, end = [], 0
    for block, output in zip(blocks, outputs, strict=True):
        parts.append(text[end : block.end()])
        end = block.end()
        if output and output["text"].strip():
            parts.append(f"\n\n```{{code-block}} text\n:class: output\n\n{shortened(output['text'])}\n```\n")
        for figure in output["figures"] if output else ():
            parts.append(f"\n\n![Figure drawn by the block above]({folder}/{figure})\n")
    return "".join([*parts, text[end:]])


def shortened(text):
    """Cut an output to what a page can show."""
    lines = text.rstrip().splitlines()
    return "\n".join(lines if len(lines) <= LINES else [*lines[:LINES], "…"])


def as_notebook(text, blocks, outputs, place):
    """Return a page as a notebook of format 4, outputs included."""
    cells, end = [], 0
    for block, output in zip(blocks, outputs, strict=True):
        if block["language"] == "console" and block["mark"] != "run":
            continue
        add_text(cells, text[end : block.start()])
        end = block.end()
        add_code(cells, block, output, place)
    add_text(cells, text[end:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def add_text(cells, text):
    """Add a cell of text."""
    if text.strip():
        cells.append({"cell_type": "markdown", "id": f"cell-{len(cells)}", "metadata": {}, "source": text.strip()})


def add_code(cells, block, output, place):
    """Add a cell of code with its outputs; a line of a console becomes one that the notebook hands to the shell."""
    code = block["code"].rstrip()
    if block["language"] == "console":
        code = "\n".join(f"!{line.removeprefix('$ ')}" for line in code.splitlines())
    outputs = []
    if output and output["text"].strip():
        outputs.append({"output_type": "stream", "name": "stdout", "text": output["text"]})
    for figure in output["figures"] if output else ():
        drawn = {"image/svg+xml": (place / figure).read_text(encoding="utf-8")}
        outputs.append({"output_type": "display_data", "data": drawn, "metadata": {}})
    base = {"cell_type": "code", "id": f"cell-{len(cells)}", "metadata": {}, "execution_count": None}
    cells.append({**base, "source": code, "outputs": outputs})


def setup(app):
    """Connect the extension."""
    app.connect("source-read", run_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
