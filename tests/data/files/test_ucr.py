"""The UCR reader: its separators, its padding, its labels, and the whole archive's sizes."""

import csv

import numpy as np
import pytest

from sostenuto.checks import FileFormatError
from sostenuto.data.files import read


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.tsv", "1\t0.5\t2\n-1\t3\t4\n"),
        ("data.txt", "  1.0000000e+00  5.0000000e-01  2.0000000e+00\n -1.0000000e+00  3.0e+00  4.0e+00\n"),
        ("data.txt", "1,0.5,2\n-1,3,4\n"),
        ("data.tsv", "1.0\t 0.5\t2\n\n-1\t3\t4"),
    ],
    ids=["tabs", "blanks", "commas", "blank line"],
)
def test_separators_and_labels(name, content, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    data = read(path)
    assert data.targets.tolist() == ["1", "-1"]
    assert data.task == "classification"
    assert [sequence.tolist() for sequence in data.sequences] == [[[0.5], [2.0]], [[3.0], [4.0]]]


def test_padding_is_cut_off_and_gaps_stay(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("a\t1\tNaN\t3\nb\t1\t2\tNaN\nc\tNaN\t2\t\n")
    sequences = read(path).sequences
    np.testing.assert_array_equal(sequences[0].ravel(), [1, np.nan, 3])
    np.testing.assert_array_equal(sequences[1].ravel(), [1, 2])
    np.testing.assert_array_equal(sequences[2].ravel(), [np.nan, 2])


def test_tasks(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("1.25\t1\t2\n3\t1\t2\n")
    assert read(path, task="regression").targets.tolist() == [1.25, 3.0]
    assert read(path).targets.tolist() == ["1.25", "3"]
    assert read(path, task="forecast").targets is None
    with pytest.raises(FileFormatError, match="expected a target for every step"):
        read(path, task="sequence")
    path.write_text("up\t1\t2\n")
    with pytest.raises(FileFormatError, match="expected a number as the target, got 'up'"):
        read(path, task="regression")


def test_prediction_without_labels(tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("?\t1\t2\nNaN\t1\t2\n")
    assert read(path, labeled=False).targets is None


@pytest.mark.data
@pytest.mark.slow
def test_the_whole_archive(real_data):
    folder = real_data / "ucr"
    with (folder / "MANIFEST.tsv").open() as manifest:
        sets = list(csv.DictReader(manifest, delimiter="\t"))
    assert len(sets) >= 50
    for row in sets:
        parts = {
            part: read(folder / row["name"] / f"{row['name']}_{part.upper()}.tsv.gz") for part in ("train", "test")
        }
        for part, data in parts.items():
            assert len(data) == int(row[part]), row["name"]
            assert {sequence.shape for sequence in data.sequences} == {(int(row["length"]), 1)}, row["name"]
            gaps = any(np.isnan(sequence).any() for sequence in data.sequences)
            assert not gaps or row["has_nan"] == "1", row["name"]
        assert len(set(parts["train"].targets)) == int(row["classes"]), row["name"]
        assert set(parts["test"].targets) <= set(parts["train"].targets), row["name"]
