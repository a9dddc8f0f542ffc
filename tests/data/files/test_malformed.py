"""Every malformed file gives one clear sentence; a test lists them."""

import numpy as np
import pytest

from sostenuto.checks import FileFormatError
from sostenuto.data.files import read
from tests.data.files.malformed import MALFORMED, Malformed

REFUSED = [row for row in MALFORMED if row.stage == "read"]
READABLE = [row for row in MALFORMED if row.stage == "fit"]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.id)
def test_refused_in_one_sentence(row: Malformed, tmp_path):
    path = row.make(tmp_path)
    with pytest.raises(FileFormatError) as caught:
        read(path, **row.options)
    message = str(caught.value)
    where = f"{path}, line {row.line}: " if row.line is not None else f"{path}"
    assert message.startswith(where)
    said = message.removeprefix(str(path))
    assert row.fragment in said
    assert said.endswith(".")
    assert ". " not in said
    assert "\n" not in said
    assert caught.value.line == row.line or row.line is None


@pytest.mark.parametrize("row", READABLE, ids=lambda row: row.id)
def test_nothing_wrong_with_the_file_itself(row: Malformed, tmp_path):
    data = read(row.make(tmp_path), **row.options)
    assert len(data) >= 1
    assert data.targets is not None
    assert not any(np.isinf(sequence).any() for sequence in data.sequences)


def test_the_table_is_long_and_its_names_are_unique():
    assert len(REFUSED) >= 60
    assert len({row.id for row in MALFORMED}) == len(MALFORMED)
    assert {row.filename.split(".")[1] for row in READABLE} >= {"ts", "tsv", "csv", "npz", "parquet"}
