"""What comes with a release: the lock, the bill of materials, and the record of the wheel where little is allowed."""

import itertools
import json
import re
import tomllib
from email.message import Message
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

import sostenuto
from tests.docs_code import ROOT, docs_module

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PINNED = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", LOCK, re.MULTILINE))


def test_every_pinned_package_has_its_hashes() -> None:
    rows = re.split(r"\n(?=\S)", LOCK.strip())
    assert len(rows) == len(PINNED) > 100
    assert [row for row in rows if not re.fullmatch(r"[^\n]+( \\\n    --hash=sha256:[0-9a-f]{64})+", row)] == []


def test_the_lock_has_what_is_asked_for() -> None:
    """Where this fails, ``make lock`` writes it again."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = stated["project"]
    groups = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *stated["dependency-groups"].values(),
    ]
    wanted = [Requirement(row) for rows in groups for row in rows]
    assert [str(one) for one in wanted if not one.specifier.contains(PINNED.get(one.name, "0"))] == []
    assert f"torch=={PINNED['torch']}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")


INSTALLED = any(metadata.Distribution.discover(name="sostenuto"))


@pytest.mark.skipif(not INSTALLED, reason="sostenuto is not installed here")
def test_the_bill_of_materials_names_all_that_the_base_install_brings() -> None:
    bill = docs_module("sbom", "release").bill("sostenuto")
    subject, parts = bill["metadata"]["component"], {part["name"]: part for part in bill["components"]}
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert subject["purl"] == f"pkg:pypi/sostenuto@{sostenuto.__version__}"
    assert subject["licenses"] == [{"expression": "Apache-2.0"}]
    assert {Requirement(row).name for row in PROJECT["project"]["dependencies"]} | {"sympy", "llvmlite"} <= set(parts)
    assert "cvxpy" not in parts
    assert [name for name, part in parts.items() if not part["licenses"][0]] == []
    known = {subject["bom-ref"], *(part["bom-ref"] for part in parts.values())}
    needs = {row["ref"]: row["dependsOn"] for row in bill["dependencies"]}
    assert set(needs) == known
    assert known >= {reference for row in needs.values() for reference in row}
    assert parts["llvmlite"]["bom-ref"] in needs[parts["numba"]["bom-ref"]]


def test_extras_that_are_asked_for_are_followed() -> None:
    needs = docs_module("sbom", "release").needs
    one = SimpleNamespace(requires=["a", "b; extra == 'more'", "c[d]; python_version < '3'"])
    assert [row.name for row in needs(one, frozenset())] == ["a"]
    assert [row.name for row in needs(one, frozenset({"more"}))] == ["a", "b"]


def test_a_package_without_a_license_is_told() -> None:
    metadata = Message()
    metadata["Name"] = "nameless"
    with pytest.raises(SystemExit, match="expected a license in the metadata of nameless"):
        docs_module("sbom", "release").license_of(SimpleNamespace(metadata=metadata))


def test_the_wheel_works_where_little_is_allowed() -> None:
    """Where the table is not the record, ``make try-wheel`` writes both."""
    wheel = docs_module("try_wheel", "release")
    page = wheel.PAGE.read_text(encoding="utf-8")
    assert page.partition(wheel.BEGIN)[2].partition(wheel.END)[0].strip() == wheel.table(wheel.RESULT)
    tried = json.loads(wheel.RESULT.read_text(encoding="utf-8"))["interpreters"]
    assert {one["python"].rpartition(".")[0] for one in tried} >= {"3.11", "3.13"}
    assert all(wheel.sound(one) for one in tried)
    failed = {**tried[0], "steps": {**tried[0]["steps"], "fit": {"well": False}}}
    assert not wheel.sound(failed)
    assert not wheel.sound({**tried[0], "writable": 3})


def test_slices_go_on_where_the_last_one_ended(monkeypatch, tmp_path):
    """Each slice starts with an empty folder: what earlier ones computed comes with it, in pieces."""
    slices = docs_module("slices", "release")
    monkeypatch.setattr(slices, "PIECE", 200)
    commands = []

    def computes(command, **_):
        commands.append(command)
        folder = Path(command[command.index("--out") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        before = len(list(folder.glob("cell*")))
        (folder / f"cell{before}").write_text(f"{before} " * 30)
        if before == 1:
            (folder / "result.json").write_text("{}")
        return SimpleNamespace(returncode=0 if before == 1 else slices.STOPPED)

    monkeypatch.setattr(slices.subprocess, "run", computes)
    ended = []
    for number in range(3):
        monkeypatch.setattr(slices, "RUNS", tmp_path / f"machine {number}")
        ended.append(slices.run("miniature", tmp_path / "cells", tmp_path / "cells", 1.0, tmp_path))
    assert ended == [3, 0, 0]
    assert len(commands) == 2  # the third finds the result
    assert 50 < float(commands[0][commands[0].index("--time-limit") + 1]) <= 60
    kept = tmp_path / "machine 2" / "miniature" / "0"
    assert sorted(path.name for path in kept.iterdir()) == ["cell0", "cell1", "result.json"]
    assert 1 <= len(list((tmp_path / "cells").glob("cells.*"))) <= slices.PIECES
    monkeypatch.setattr(slices, "PIECE", 10)
    with pytest.raises(SystemExit, match="expected at most 8 pieces"):
        slices.pack(kept, tmp_path / "cells")


def test_what_is_queued_can_be_run() -> None:
    """Every setting of the queue is one of its experiment's; plain rows have equal epochs; data fit a slice."""
    from sostenuto.cli.options import named_values
    from sostenuto.experiments.catalog import find

    slices = docs_module("slices", "release")
    for name, one in slices.QUEUE.items():
        for command in one.commands:
            verb, item, *words = command.split()
            if verb != "reproduce":
                assert command == "bench permuted_mnist"
                continue
            changes = named_values([value for before, value in itertools.pairwise(words) if before == "--set"])
            settings = find(item).settings(words[words.index("--protocol") + 1], changes)
            if "views=false" in words:
                assert len({value for key, value in settings.items() if key.endswith(".epochs")}) == 1, name
    assert all(row in slices.listing(ROOT) for row in slices.QUEUE)
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert [name for name in slices.QUEUE if f"release/slices.py run {name}" not in page and name not in page] == []
