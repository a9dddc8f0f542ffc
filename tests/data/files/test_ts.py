"""The .ts reader: headers in any form, unequal lengths, missing values, and the archive's own files."""

import numpy as np
import pytest

from sostenuto.checks import FileFormatError
from sostenuto.data.files import read

MULTIVARIATE = """# a comment
@problemName  Two Channels
@TIMESTAMPS false

@classLabel TRUE down up"""


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.ts"


def test_header_in_any_order_and_case_with_comments(path):
    write(path, MULTIVARIATE, "@dimension 2", "@DATA", "1,2,3:4,5,6:up", "# between", "", " 7, ?:8,NaN : down ")
    data = read(path)
    assert data.task == "classification"
    assert data.targets.tolist() == ["up", "down"]
    assert data.targets.dtype.kind == "U"
    np.testing.assert_array_equal(data.sequences[0], [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(data.sequences[1], [[7, 8], [np.nan, np.nan]])


def test_regression_and_channels_counted_from_the_first_case(path):
    write(path, "@univariate false", "@classLabel false", "@targetLabel true", "@data", "1,2:3,4:-0.5", "1:2:1e3")
    data = read(path)
    assert data.task == "regression"
    assert data.targets.tolist() == [-0.5, 1000.0]
    assert data.targets.dtype == float
    assert [sequence.shape for sequence in data.sequences] == [(2, 2), (1, 2)]


@pytest.mark.parametrize(
    ("header", "case"),
    [
        ("@classLabel false", "1,2"),
        ("@univariate true\n@classLabel true a b", "1,2"),
        ("@univariate true\n@classLabel true a b", "1,2:?"),
        ("@problemName none", "1,2"),
    ],
)
def test_prediction_needs_no_labels(path, header, case):
    write(path, header, "@data", case, case)
    data = read(path, labeled=False)
    assert data.targets is None
    assert len(data) == 2
    assert data.num_channels == 1
    with pytest.raises(FileFormatError):
        read(path)


def test_prediction_keeps_labels_and_refuses_some(path):
    write(path, "@univariate true", "@classLabel true a b", "@data", "1,2:a", "3,4:b")
    assert read(path, labeled=False).targets.tolist() == ["a", "b"]
    write(path, "@univariate true", "@classLabel true a b", "@data", "1,2:a", "3,4")
    with pytest.raises(FileFormatError, match="line 5: expected a target, got a missing one; give every sequence"):
        read(path, labeled=False)


def test_task_must_agree_with_the_header(path):
    write(path, "@univariate true", "@classLabel true 1 2", "@data", "1,2:1")
    with pytest.raises(FileFormatError, match="expected task='classification' as the header says"):
        read(path, task="regression")
    forecast = read(path, task="forecast")
    assert forecast.targets is None
    assert forecast.task == "forecast"


def test_declared_length_is_checked(path):
    write(path, "@univariate true", "@equalLength true", "@seriesLength 3", "@classLabel true a", "@data", "1,2:a")
    with pytest.raises(FileFormatError, match="line 6: expected 3 values in each channel, got 2"):
        read(path)


ARCHIVE = {  # name: (train cases, test cases, channels, shortest, longest, classes or None for regression)
    "BasicMotions": (40, 40, 6, 100, 100, 4),
    "JapaneseVowels": (270, 370, 12, 7, 29, 9),
    "PLAID": (537, 537, 1, 100, 1344, 11),
    "PickupGestureWiimoteZ": (50, 50, 1, 29, 361, 10),
    "Covid3Month": (140, 61, 1, 84, 84, None),
    "CardanoSentiment": (74, 33, 2, 24, 24, None),
    "Tecator": (172, 43, 1, 100, 100, None),
}


@pytest.mark.data
@pytest.mark.parametrize("name", ARCHIVE)
def test_archive_files(name, real_data):
    train, test = (read(real_data / "uea" / name / f"{name}_{part}.ts.gz") for part in ("TRAIN", "TEST"))
    train_cases, test_cases, channels, shortest, longest, classes = ARCHIVE[name]
    assert (len(train), len(test)) == (train_cases, test_cases)
    assert {sequence.shape[1] for part in (train, test) for sequence in part.sequences} == {channels}
    lengths = [len(sequence) for part in (train, test) for sequence in part.sequences]
    assert (min(lengths), max(lengths)) == (shortest, longest)
    assert train.task == test.task == ("regression" if classes is None else "classification")
    if classes is not None:
        assert len(set(train.targets)) == classes
        assert set(test.targets) <= set(train.targets)


@pytest.mark.data
def test_archive_values(real_data):
    motion = read(real_data / "uea" / "BasicMotions" / "BasicMotions_TRAIN.ts.gz")
    assert motion.sequences[0][:3, 0].tolist() == [0.079106, 0.079106, -0.903497]
    assert motion.targets[0] == "Standing"
    meat = read(real_data / "uea" / "Tecator" / "Tecator_TRAIN.ts.gz")
    assert meat.targets[-1] == 46.3
    assert meat.sequences[-1][-1, 0] == 3.38148
