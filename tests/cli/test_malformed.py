"""Every malformed file, through the command line: one clear sentence, exit code 2, and no folder left behind."""

import pytest

from sostenuto.cli.errors import in_options
from tests.cli.small import call, said
from tests.data.files.malformed import MALFORMED, Malformed

# `fit` reads files in parts, so this one reaches the check of its (single) class.
READ_IN_PARTS = "npz in parts"


@pytest.mark.parametrize("row", MALFORMED, ids=lambda row: row.id)
def test_one_sentence_and_exit_code_2(row: Malformed, tmp_path, monkeypatch):
    place = tmp_path / "data"
    place.mkdir()
    path = row.make(place)
    monkeypatch.chdir(tmp_path)
    options = [part for name, value in row.options.items() for part in (f"--{name}", value)]
    result = call("fit", path, "--epochs", "1", "--json", *options)
    assert result.exit_code == 2
    sentence = said(result)
    assert ". " not in sentence.replace(str(path), "")
    assert "expected" in sentence
    if row.id != READ_IN_PARTS:
        assert in_options(row.fragment) in sentence
    if row.stage == "read" and row.id != READ_IN_PARTS:
        assert sentence.startswith(str(path))
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_there_are_at_least_sixty():
    assert len(MALFORMED) >= 60
