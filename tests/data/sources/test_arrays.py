import numpy as np
import pytest

from sostenuto.checks import FileFormatError
from sostenuto.data.sources.arrays import load_arrays, save_arrays


def test_what_is_saved_is_loaded(tmp_path):
    save_arrays(tmp_path / "deep" / "a.npz", {"a": np.arange(3), "b": np.zeros((2, 2))})
    found = load_arrays(tmp_path / "deep" / "a.npz", {"a": 1})
    assert found["a"].tolist() == [0, 1, 2]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.npz"]


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(FileFormatError, match=r"expected an \.npz file with the arrays a, got a single array"):
        load_arrays(tmp_path / "a.npy", {"a": 1})


def test_every_truncation_is_refused(tmp_path):
    save_arrays(tmp_path / "a.npz", {"a": np.arange(1000)})
    whole = (tmp_path / "a.npz").read_bytes()
    for size in range(0, len(whole), 97):
        (tmp_path / "a.npz").write_bytes(whole[:size])
        with pytest.raises(FileFormatError):
            load_arrays(tmp_path / "a.npz", {"a": 1})


def test_pickles_stay_closed(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(FileFormatError, match="could not read it"):
        load_arrays(tmp_path / "a.npz", {"a": 1})
