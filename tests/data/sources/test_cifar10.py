import hashlib
import io
import tarfile

import numpy as np
import pytest

import sostenuto as so
from sostenuto.checks import FileFormatError
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.sources import cifar10
from sostenuto.data.sources.noise_padding import NoisePadding

RANDOM = np.random.RandomState(0)
X_TRAIN = RANDOM.randint(0, 256, (10, 32, 32, 3)).astype(np.uint8)
Y_TRAIN = np.arange(10, dtype=np.uint8)
X_TEST = RANDOM.randint(0, 256, (4, 32, 32, 3)).astype(np.uint8)
Y_TEST = np.array([3, 8, 8, 0], dtype=np.uint8)
ARRAYS = {"x_train": X_TRAIN, "y_train": Y_TRAIN, "x_test": X_TEST, "y_test": Y_TEST}


def binary(drop: str = "", cut: int = 0) -> bytes:
    def records(images, labels):
        return b"".join(
            bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(images, labels, strict=True)
        )

    files = {
        f"data_batch_{k + 1}.bin": records(X_TRAIN[2 * k : 2 * k + 2], Y_TRAIN[2 * k : 2 * k + 2]) for k in range(5)
    }
    files |= {"test_batch.bin": records(X_TEST, Y_TEST), "readme.html": b"hello"}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in files.items():
            if name != drop:
                info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
                info.size = len(content) - cut
                archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def sheet(images: np.ndarray, columns: int) -> np.ndarray:
    rows = images.reshape(-1, columns, 32, 32, 3)
    return rows.transpose(0, 2, 1, 3, 4).reshape(rows.shape[0] * 32, columns * 32, 3)


def put(folder, form: str) -> None:
    target = folder / "cifar10"
    target.mkdir(parents=True)
    if form == "npz":
        np.savez(target / "cifar10.npz", **ARRAYS)
    elif form == "binary":
        (target / "cifar-10-binary.tar.gz").write_bytes(binary())
    else:
        Image = pytest.importorskip("PIL.Image")  # noqa: N806 (a module, called as by everyone)
        np.savez(target / "labels.npz", y_train=Y_TRAIN, y_test=Y_TEST)
        for name, images in (("train_0", X_TRAIN[:6]), ("train_1", X_TRAIN[6:]), ("test", X_TEST)):
            Image.fromarray(sheet(images, 2)).save(target / f"cifar10_{name}.webp", lossless=True, exact=True)


@pytest.mark.parametrize("form", ["npz", "binary", "sheets"])
class TestForms:
    def test_a_step_of_pixels_is_one_pixel_in_color(self, form, data_folder):
        put(data_folder, form)
        data = so.datasets.load("cifar10/pixels", data_folder)
        values = np.round(np.stack(data.train.sequences) * 255).astype(np.uint8)
        assert values.shape == (10, 1024, 3)
        assert np.array_equal(values[:, 33], X_TRAIN[:, 1, 1])
        assert np.array_equal(values.reshape(X_TRAIN.shape), X_TRAIN)
        assert data.train.targets.tolist() == list(cifar10.CLASSES)
        assert data.test.targets.tolist() == ["cat", "ship", "ship", "airplane"]
        assert data.train.channel_names == ("red", "green", "blue")
        assert data.batch_transform is None

    def test_a_step_of_noise_padded_is_one_row(self, form, data_folder):
        put(data_folder, form)
        data = so.datasets.load("cifar10/noise-padded", data_folder)
        values = np.round(np.stack(data.test.sequences) * 255).astype(np.uint8)
        assert np.array_equal(values, X_TEST.reshape(4, 32, 96))
        assert data.batch_transform == NoisePadding(steps=1000, seed=0)
        batch = SequenceBatch.from_sequences(data.test.sequences)
        assert data.batch_transform(batch).values.shape == (4, 1000, 96)


def test_downloads_verifies_and_converts(site, data_folder, monkeypatch):
    monkeypatch.setattr(cifar10, "URL", site.put("cifar-10-binary.tar.gz", binary()))
    monkeypatch.setattr(cifar10, "SHA256", hashlib.sha256(binary()).hexdigest())
    data = so.datasets.load("cifar10/pixels", data_folder)
    assert data.train.checksum() == so.datasets.load("cifar10/pixels", data_folder).train.checksum()
    assert len(site.requests) == 1
    cache = data_folder.parent / "cache"
    assert [path.name for path in (cache / "cifar10").iterdir()] == ["cifar10.npz"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a tar", "expected a whole archive"),
        (binary()[:2000], "expected a whole archive"),
        (binary(drop="data_batch_3.bin"), r"expected six files of images, missed data_batch_3\.bin"),
        (binary(cut=1), "expected records of 3073 bytes"),
    ],
    ids=["no archive", "cut off", "a file short", "a byte short"],  # an archive's bytes hold the second it was made in
)
def test_a_damaged_archive_is_one_sentence(content, message, data_folder):
    (data_folder / "cifar10").mkdir()
    (data_folder / "cifar10" / "cifar-10-binary.tar.gz").write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        so.datasets.load("cifar10/pixels", data_folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": X_TRAIN.transpose(0, 3, 1, 2)}, "expected x_train to hold 32×32 color images"),
        ({"y_test": np.array([1, 2, 3, 10])}, "expected y_test to hold classes 0 to 9"),
        ({"y_test": Y_TEST[:3]}, "expected as many rows in each array"),
    ],
)
def test_a_wrong_file_is_one_sentence(change, message, data_folder):
    (data_folder / "cifar10").mkdir()
    np.savez(data_folder / "cifar10" / "cifar10.npz", **(ARRAYS | change))
    with pytest.raises(FileFormatError, match=message):
        so.datasets.load("cifar10/pixels", data_folder)


def test_a_damaged_sheet_is_one_sentence(data_folder):
    put(data_folder, "sheets")
    (data_folder / "cifar10" / "cifar10_test.webp").write_bytes(b"RIFF")
    with pytest.raises(FileFormatError, match=r"cifar10_test\.webp: expected an image of 32×32 tiles"):
        so.datasets.load("cifar10/pixels", data_folder)


def test_the_real_one(real_data):
    data = so.datasets.load("cifar10/noise-padded")
    assert (len(data.train), len(data.test)) == (50000, 10000)
    assert data.train.targets[:4].tolist() == ["frog", "truck", "truck", "deer"]
    assert data.test.targets[:4].tolist() == ["cat", "ship", "ship", "airplane"]
    assert all((data.test.targets == name).sum() == 1000 for name in cifar10.CLASSES)
    colors = np.stack(data.test.sequences).reshape(-1, 3).mean(axis=0)
    assert colors == pytest.approx([0.4942, 0.4851, 0.4504], abs=1e-3)
