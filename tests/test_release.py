"""What comes with a release: the lock, the bill of materials, and the record of the wheel where little is allowed."""

import json
import re
import tomllib
from email.message import Message
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
