"""CIFAR-10 as sequences: pixel by pixel, or row by row with noise after the image."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from sostenuto.checks import FileFormatError
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.download import fetch, members
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources.arrays import check_same_length, load_arrays, save_arrays
from sostenuto.data.sources.noise_padding import NoisePadding
from sostenuto.data.sources.pixels import pixel_set

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NOISE_SEED = 0

_SHEETS = tuple(f"cifar10/cifar10_{part}.webp" for part in ("train_0", "train_1", "test"))
FORMS = (("cifar10/cifar10.npz",), (*_SHEETS, "cifar10/labels.npz"), ("cifar10/cifar-10-binary.tar.gz",))
_NAMES = ("cifar10/pixels", "cifar10/noise-padded")
_ORIGIN = "CIFAR-10 (Krizhevsky 2009)"
_ADVICE = (
    "put cifar10/cifar10.npz (arrays x_train, y_train, x_test, y_test; images are (n, 32, 32, 3) bytes) "
    f"or {URL} as cifar10/cifar-10-binary.tar.gz"
)


def load(name: str, places: Places) -> Dataset:
    """Build ``cifar10/pixels`` (1024 steps of red, green, blue) or ``cifar10/noise-padded`` (32 rows of 96, to 1000).

    Pixels are in [0, 1]. A step of ``pixels`` is one pixel with its three colors (the released code of erichson2021
    read three neighbors of one color instead, see ``docs/errata.md``, erichson2021.6). A row of ``noise-padded`` is 32
    pixels of three colors; `NoisePadding` appends 968 steps of noise to each batch.
    """
    arrays = _arrays(places.obtain(name, FORMS, _download, _ADVICE))
    pixels = name == "cifar10/pixels"

    def part(which: str) -> SequenceSet:
        images = arrays[f"x_{which}"]
        steps = images.reshape(len(images), 1024, 3) if pixels else images.reshape(len(images), 32, 96)
        labels = np.array(CLASSES)[arrays[f"y_{which}"]]
        return pixel_set(steps, labels, highest=255, channel_names=("red", "green", "blue") if pixels else ())

    told = "one pixel per step" if pixels else "one row per step, then fresh noise for each image up to 1000 steps"
    return Dataset(
        name=name,
        train=part("train"),
        test=part("test"),
        description=f"32×32 color photographs of ten kinds of things, {told}",
        origin=_ORIGIN,
        batch_transform=None if pixels else NoisePadding(steps=1000, seed=NOISE_SEED),
    )


def _arrays(paths: tuple[Path, ...]) -> dict[str, np.ndarray]:
    if paths[0].suffix == ".webp":
        arrays = _from_sheets(paths)
    elif paths[0].suffix == ".npz":
        arrays = load_arrays(paths[0], {"x_train": 4, "y_train": 1, "x_test": 4, "y_test": 1})
    else:
        arrays = read_binary(paths[0])
    for which in ("train", "test"):
        check_same_length(paths[0], arrays, f"x_{which}", f"y_{which}")
        images, labels = arrays[f"x_{which}"], arrays[f"y_{which}"]
        if images.shape[1:] != (32, 32, 3) or images.dtype != np.uint8:
            got = f"got {images.dtype} of shape {images.shape}"
            raise FileFormatError(paths[0], f"expected x_{which} to hold 32×32 color images of bytes", got)
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > 9:
            raise FileFormatError(paths[-1], f"expected y_{which} to hold classes 0 to 9", f"got {np.unique(labels)}")
    return arrays


def _from_sheets(paths: tuple[Path, ...]) -> dict[str, np.ndarray]:
    labels = load_arrays(paths[3], {"y_train": 1, "y_test": 1})
    train = np.concatenate([_tiles(paths[0]), _tiles(paths[1])])
    return {"x_train": train, "x_test": _tiles(paths[2]), **labels}


def _tiles(path: Path) -> np.ndarray:
    """Cut a sheet of 32×32 tiles, left to right and top to bottom."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            sheet = np.asarray(image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise FileFormatError(path, "expected an image of 32×32 tiles", f"could not read it ({error})") from error
    rows, columns = sheet.shape[0] // 32, sheet.shape[1] // 32
    if sheet.shape[:2] != (32 * rows, 32 * columns):
        raise FileFormatError(path, "expected sides that are multiples of 32", f"got {sheet.shape[:2]}")
    return sheet.reshape(rows, 32, columns, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)


def read_binary(path: Path) -> dict[str, np.ndarray]:
    """Read the binary version: records of one label byte and 1024 red, green and blue bytes each. No pickle."""
    batches = {name.name: content for name, content in members(path, lambda name: name.suffix == ".bin")}
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    absent = [name for name in (*names, "test_batch.bin") if name not in batches]
    if absent:
        raise FileFormatError(path, "expected six files of images", f"missed {', '.join(absent)}")
    x_train, y_train = _records(path, (batches[name] for name in names))
    x_test, y_test = _records(path, (batches["test_batch.bin"],))
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def _records(path: Path, contents: Iterable[bytes]) -> tuple[np.ndarray, np.ndarray]:
    joined = np.frombuffer(b"".join(contents), np.uint8)
    if len(joined) % 3073:
        raise FileFormatError(path, "expected records of 3073 bytes", f"got {len(joined)} bytes in all")
    table = joined.reshape(-1, 3073)
    return np.ascontiguousarray(table[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), table[:, 0].copy()


def _download(cache: Path) -> None:
    archive = fetch(URL, cache / FORMS[2][0], sha256=SHA256)
    save_arrays(cache / FORMS[0][0], read_binary(archive))
    archive.unlink()


def _entry(name: str, title: str, steps: str, channels: str) -> Entry:
    return Entry(
        name=name,
        title=title,
        task="classification",
        steps=steps,
        channels=channels,
        classes="10",
        sizes="50000 / 10000",
        origin=_ORIGIN,
        license="none stated; cite Krizhevsky 2009",
    )


SOURCE = Source(
    prefix="cifar10",
    entries=(
        _entry(_NAMES[0], "CIFAR-10, pixel by pixel in color", "1024", "3"),
        _entry(_NAMES[1], "CIFAR-10, row by row, then noise to 1000 steps", "32, padded to 1000", "96"),
    ),
    names=_NAMES,
    load=load,
    local=lambda places: _NAMES if places.find(FORMS) else (),
)
