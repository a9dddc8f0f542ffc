import gzip
import hashlib
import struct

import numpy as np
import pytest
import torch

import sostenuto as so
from sostenuto.checks import FileFormatError, InputError
from sostenuto.data.sources import mnist
from sostenuto.data.sources.pixels import fixed_permutation

RANDOM = np.random.RandomState(0)
ARRAYS = {
    "x_train": RANDOM.randint(0, 256, (5, 28, 28)).astype(np.uint8),
    "y_train": np.arange(5, dtype=np.uint8),
    "x_test": RANDOM.randint(0, 256, (3, 28, 28)).astype(np.uint8),
    "y_test": np.array([7, 2, 1], dtype=np.uint8),
}


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes())


@pytest.fixture
def npz(data_folder):
    (data_folder / "mnist").mkdir()
    np.savez(data_folder / "mnist" / "mnist.npz", **ARRAYS)
    return data_folder


def test_permutations_are_those_of_the_global_generator():
    for seed in (5544, 12008):
        torch.manual_seed(seed)
        assert np.array_equal(fixed_permutation(784, seed), torch.randperm(784).numpy())


def test_reads_pixels_in_reading_order(npz):
    data = so.datasets.load("mnist", npz)
    assert np.allclose(np.stack(data.train.sequences)[:, :, 0] * 255, ARRAYS["x_train"].reshape(5, 784))
    assert data.train.targets.tolist() == ["0", "1", "2", "3", "4"]
    assert data.test.targets.tolist() == ["7", "2", "1"]


@pytest.mark.parametrize(("name", "seed"), [("mnist/permuted", 5544), ("mnist/permuted-12008", 12008)])
def test_permutes_every_image_alike(name, seed, npz):
    torch.manual_seed(seed)
    order = torch.randperm(784).numpy()
    data = so.datasets.load(name, npz)
    assert np.allclose(np.stack(data.test.sequences)[:, :, 0] * 255, ARRAYS["x_test"].reshape(3, 784)[:, order])


def test_reads_the_original_files(data_folder, npz):
    (data_folder / "mnist" / "mnist.npz").rename(data_folder / "mnist.npz")
    for name, array in zip(mnist.FILES, ARRAYS.values(), strict=True):
        (data_folder / "mnist" / name).write_bytes(idx(array))
    data = so.datasets.load("mnist", data_folder)
    assert np.allclose(np.stack(data.test.sequences)[:, :, 0] * 255, ARRAYS["x_test"].reshape(3, 784))


def test_downloads_verifies_and_converts(site, data_folder, monkeypatch):
    files = {name: idx(array) for name, array in zip(mnist.FILES, ARRAYS.values(), strict=True)}
    for name, content in files.items():
        site.put(name, content)
    monkeypatch.setattr(mnist, "URL", site.address)
    with pytest.raises(InputError, match="gave another file than expected"):
        so.datasets.load("mnist", data_folder)
    monkeypatch.setattr(mnist, "FILES", {name: hashlib.sha256(data).hexdigest() for name, data in files.items()})
    first = so.datasets.load("mnist", data_folder)
    asked = len(site.requests)
    again = so.datasets.load("mnist", data_folder)
    assert first.train.checksum() == again.train.checksum()
    assert len(site.requests) == asked
    cache = data_folder.parent / "cache"
    assert sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()) == ["mnist/mnist.npz"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": None}, "expected the arrays x_train, y_train, x_test, y_test, missed x_train"),
        ({"x_train": ARRAYS["x_train"][:4]}, "expected as many rows in each array"),
        ({"x_test": np.zeros((3, 28, 28))}, "expected x_test to hold 28×28 images of bytes, got float64"),
        ({"x_test": ARRAYS["x_test"][:, :27]}, r"got uint8 of shape \(3, 27, 28\)"),
        ({"y_test": np.zeros((3, 1))}, "expected y_test to have 1 axes"),
        ({"y_test": np.array([None, 1, 2])}, "could not read it .*allow_pickle"),
    ],
)
def test_a_wrong_file_is_one_sentence(change, message, data_folder):
    (data_folder / "mnist").mkdir()
    arrays = {name: array for name, array in (ARRAYS | change).items() if array is not None}
    np.savez(data_folder / "mnist" / "mnist.npz", **arrays)
    with pytest.raises(FileFormatError, match=message) as caught:
        so.datasets.load("mnist", data_folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut"])
def test_a_damaged_file_is_one_sentence(content, data_folder):
    (data_folder / "mnist").mkdir()
    (data_folder / "mnist" / "mnist.npz").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"mnist\.npz: expected an \.npz file"):
        so.datasets.load("mnist", data_folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"plain", "expected a gzipped IDX file"),
        (gzip.compress(b"", mtime=0), "expected an IDX file of bytes"),
        (gzip.compress(b"\0\0\x0d\x01aaaa", mtime=0), "expected an IDX file of bytes"),
        (gzip.compress(b"\0\0\x08\x02aaaa", mtime=0), "values after the header"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x09abc", mtime=0), r"expected \(9,\) values after the header, got 3"),
    ],
)
def test_a_damaged_idx_file_is_one_sentence(content, message, tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        mnist.read_idx(path)


def test_the_real_one(real_data):
    data = so.datasets.load("mnist")
    assert (len(data.train), len(data.test)) == (60000, 10000)
    assert data.train.targets[:5].tolist() == ["5", "0", "4", "1", "9"]
    assert data.test.targets[:3].tolist() == ["7", "2", "1"]
    assert float(np.mean([sequence.mean() for sequence in data.train.sequences])) == pytest.approx(0.1307, abs=1e-4)
