"""A short version of every attack, and the table that the long ones write."""

import json
import os
import re

import pytest

from tests.attacks import readers, stored_files
from tests.attacks.__main__ import ATTACKS, RESULT, ROOT, apart
from tests.attacks.failing_files import BROKEN, FULL
from tests.attacks.outcome import Bound
from tests.attacks.table import BEGIN, END, table

PAGE = ROOT / "docs" / "reliability.md"


def kept(outcome) -> None:
    """Look at the failures first: they say what happened."""
    assert outcome.failures == []
    assert outcome.cases > 0
    assert outcome.failed == 0


def test_damaged_files(tmp_path):
    outcome = readers.attack(Bound(6000, 20), tmp_path)
    kept(outcome)
    assert outcome.counts["read"] > 0.02 * outcome.cases < outcome.counts["refused"]


def test_damage_that_hypothesis_chooses(tmp_path):
    outcome = readers.hypothesis_attack(Bound(750, 60), tmp_path)  # 150 of each format
    kept(outcome)
    assert outcome.counts["read"] > 20 < outcome.counts["refused"]


@pytest.mark.filterwarnings("default")
def test_damaged_runs(tmp_path):
    kept(stored_files.attack(Bound(60, 10), tmp_path))


def test_a_reader_that_breaks_the_promise_is_found(tmp_path, monkeypatch):
    def broken(path, labeled):
        raise KeyError(path.name, labeled)

    monkeypatch.setattr(readers, "read_parts", broken)
    outcome = readers.attack(Bound(10, 20), tmp_path)
    assert outcome.failed == outcome.cases == 10
    assert "KeyError" in outcome.failures[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("kills", 15), ("disk", 1), ("writers", 1), ("memory", 1)])
def test_runs_that_are_struck(name, least):
    """Forked from a process of their own; some cases each, the long version has hundreds."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    if name != "memory":
        pytest.importorskip("zarr", reason="Gram matrices are stored with the cluster extra")
    outcome = apart(name, 4.0, seed=1, least=least)
    assert outcome["failures"] == []
    assert outcome["cases"] >= least
    if name == "kills":
        assert outcome["outcomes"]["killed with checkpoints, equal"] >= 2


@pytest.mark.parametrize(("error", "stays"), [(FULL, True), (BROKEN, False)])
def test_the_layer_fails_at_the_write_that_is_named(tmp_path, error, stays):
    program = f"""
import errno, os
from pathlib import Path
from tests.attacks.failing_files import FailingFiles
folder, said = Path({str(tmp_path)!r}), []
layer = FailingFiles(folder, 3, {error}, stays={stays})
layer.install()
def tried(what, *arguments, **named):
    try:
        what(*arguments, **named)
        said.append("")
    except OSError as raised:
        said.append(errno.errorcode[raised.errno])
tried((folder / "a").write_bytes, b"0123")
tried((folder / "b").write_text, "01234567")
tried((folder / "c").mkdir)
tried((folder / "a").read_bytes)
print(said, layer.count)
"""
    from tests.apart import run_apart

    said = run_apart(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}")
    name = "ENOSPC" if error == FULL else "EIO"
    after = name if stays else ""
    assert said.startswith(str(["", name, after, ""]))
    assert (tmp_path / "a").read_text() == "0123"
    # What one broken write left in Python's buffer is written when the file is closed.
    assert (tmp_path / "b").read_text() == ("0123" if stays else "01234567")


def test_the_table_is_the_stored_result():
    stored = json.loads(RESULT.read_text(encoding="utf-8"))
    assert list(stored["attacks"]) == list(ATTACKS)
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0].strip() == table(RESULT)
    assert sum(one["failed"] for one in stored["attacks"].values()) == 0


def test_every_attack_is_explained():
    page = PAGE.read_text(encoding="utf-8")
    names = {one["attack"] for one in json.loads(RESULT.read_text(encoding="utf-8"))["attacks"].values()}
    explained = set(re.findall(r"^### (.+)$", page, re.MULTILINE))
    assert names == explained
