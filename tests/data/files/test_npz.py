"""The .npz reader: layouts, lengths, parts, and compressed members."""

import io
import zipfile

import numpy as np
import pytest

from sostenuto.checks import FileFormatError
from sostenuto.data.files import read, read_parts

X = np.arange(24.0).reshape(2, 4, 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.npz"


def test_layouts(path):
    np.savez(path, X=X, y=["up", "down"])
    np.testing.assert_array_equal(np.stack(read(path).sequences), X)
    np.savez(path, X=X.transpose(0, 2, 1), y=["up", "down"])
    np.testing.assert_array_equal(np.stack(read(path, layout="bct").sequences), X)
    np.savez(path, X=X[:, :, 0], y=["up", "down"])
    np.testing.assert_array_equal(np.stack(read(path, layout="bct").sequences), X[:, :, :1])


def test_everything_that_belongs_to_x(path):
    padded = X.copy()
    padded[1, 2:] = np.inf
    spans = np.ones((2, 4))
    spans[1, 2:] = 0
    np.savez(path, X=padded, y=[1, 2], lengths=[4, 2], timespans=spans, groups=["g", "h"], other=np.zeros(3))
    data = read(path)
    assert [len(sequence) for sequence in data.sequences] == [4, 2]
    assert [len(span) for span in data.timespans] == [4, 2]
    assert data.groups.tolist() == ["g", "h"]
    assert data.targets.tolist() == ["1", "2"]
    assert data.task == "classification"


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8, np.uint64, bool, ">f8"])
def test_values_become_floats(path, kind):
    np.savez(path, X=X.astype(kind), y=[0.5, 1.5])
    sequence = read(path).sequences[0]
    assert sequence.dtype == (np.float32 if kind is np.float32 else np.float64)
    assert sequence.dtype.isnative
    np.testing.assert_array_equal(sequence, X[0].astype(kind).astype(float))


@pytest.mark.parametrize(
    ("y", "task", "targets"),
    [
        (np.array([1.0, 2.0]), "classification", ["1", "2"]),
        (np.array([[3], [4]]), "classification", ["3", "4"]),
        (np.array([1.5, 2.0], np.float32), "regression", [1.5, 2.0]),
        (np.array([b"caf\xc3\xa9", b"tea"]), "classification", ["café", "tea"]),
        (np.array([True, False]), "classification", ["True", "False"]),
    ],
)
def test_targets(path, y, task, targets):
    np.savez(path, X=X, y=y)
    data = read(path)
    assert data.task == task
    assert data.targets.tolist() == targets


def test_several_numbers_a_sequence(path):
    np.savez(path, X=X, y=np.array([[1, 2], [3, 4]]))
    assert read(path, task="regression").targets.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    np.savez(path, X=X, y=np.array([[1, 2], [3, np.nan]]))
    with pytest.raises(FileFormatError, match="in X row 1, counted from 0, expected finite targets, got nan"):
        read(path, task="regression")


def test_targets_at_every_step(path):
    np.savez(path, X=X, y=np.array([[1, 2, 3, 4], [5, 6, np.nan, np.nan]]), lengths=[4, 2])
    data = read(path, task="sequence")
    assert [target.tolist() for target in data.targets] == [[1, 2, 3, 4], [5, 6]]
    np.savez(path, X=X, y=np.full((2, 4), "noun"), lengths=[4, 2])
    assert read(path, task="sequence").targets[1].tolist() == ["noun", "noun"]
    np.savez(path, X=X, y=np.zeros((2, 3)))
    with pytest.raises(FileFormatError, match=r"expected y of shape \(n, 4, …\) for task='sequence'"):
        read(path, task="sequence")


def test_prediction(path):
    np.savez(path, X=X)
    assert read(path, labeled=False).targets is None
    assert read(path, task="forecast").targets is None
    np.savez(path, X=X, y=[np.nan, np.nan])
    assert read(path, labeled=False).targets is None
    np.savez(path, X=X, y=[0, 1])
    assert read(path, labeled=False).targets.tolist() == ["0", "1"]


def test_parts_share_the_task_of_the_training_part(path):
    np.savez(path, X_train=X, y_train=[0.5, 1.5], X_test=X[:1], y_test=[2.0])
    parts = read_parts(path)
    assert {name: part.task for name, part in parts.items()} == {"train": "regression", "test": "regression"}
    assert parts["test"].targets.tolist() == [2.0]
    np.savez(path, X=X, y=[0, 1])
    assert list(read_parts(path)) == ["train"]
    np.savez(path, X_train=X, y_train=[0, 1], X_test=X[:, :, :2], y_test=[0, 1])
    with pytest.raises(FileFormatError, match="expected as many channels in X_test as in X_train"):
        read_parts(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_compressed_members(path, method):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, array in {"X": X, "y": np.array([0, 1])}.items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    np.testing.assert_array_equal(read(path).sequences[1], X[1])


def test_a_member_that_is_no_array(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", "not an array")
    with pytest.raises(FileFormatError, match="expected X to be an array, got bytes"):
        read(path)


ARCHIVE = {  # name: (train, test, steps, channels, classes)
    "Epilepsy": (137, 138, 206, 3, 4),
    "RacketSports": (151, 152, 30, 6, 4),
    "ERing": (30, 270, 65, 4, 6),
    "StandWalkJump": (12, 15, 2500, 4, 3),
    "AtrialFibrillation": (15, 15, 640, 2, 3),
    "Libras": (180, 180, 45, 2, 15),
    "PenDigits": (7494, 3498, 8, 2, 10),
}


@pytest.mark.data
@pytest.mark.parametrize("name", ARCHIVE)
def test_archive_files(name, real_data):
    parts = read_parts(real_data / "uea_npz" / f"{name}.npz")
    train, test, steps, channels, classes = ARCHIVE[name]
    assert (len(parts["train"]), len(parts["test"])) == (train, test)
    assert {sequence.shape for part in parts.values() for sequence in part.sequences} == {(steps, channels)}
    assert len(set(parts["train"].targets)) == classes
