"""MNIST read pixel by pixel, in reading order or in the fixed permutations of erichson2021 and rusch2021."""

import gzip
import struct
from pathlib import Path

import numpy as np

from sostenuto.checks import FileFormatError
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.download import DAMAGED, fetch
from sostenuto.data.places import Places
from sostenuto.data.registry import Entry, Source
from sostenuto.data.sources.arrays import check_same_length, load_arrays, save_arrays
from sostenuto.data.sources.pixels import fixed_permutation, pixel_set

URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FILES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
SEEDS = {"mnist": None, "mnist/permuted": 5544, "mnist/permuted-12008": 12008}
"""The seed of each variant's permutation: 5544 is rusch2021's, 12008 that of erichson2021's last release."""

FORMS = (("mnist/mnist.npz",), tuple(f"mnist/{name}" for name in FILES))
_KEYS = ("x_train", "y_train", "x_test", "y_test")
_ORIGIN = "MNIST (LeCun, Cortes and Burges 1998)"
_ADVICE = (
    f"put mnist/mnist.npz (arrays {', '.join(_KEYS)}; images are (n, 28, 28) bytes) "
    f"or the four files {', '.join(FILES)} of {URL} in a folder mnist"
)


def load(name: str, places: Places) -> Dataset:
    """Build ``mnist``, ``mnist/permuted`` or ``mnist/permuted-12008``: 784 steps of one channel in [0, 1].

    Step t of a permuted sequence is pixel ``extras["order"][t]``.
    """
    paths = places.obtain(name, FORMS, _download, _ADVICE)
    arrays = _from_npz(paths[0]) if len(paths) == 1 else _from_idx(paths)
    seed = SEEDS[name]
    order = None if seed is None else fixed_permutation(784, seed)

    def part(which: str) -> SequenceSet:
        images, labels = arrays[f"x_{which}"], arrays[f"y_{which}"]
        flat = images.reshape(len(images), 784, 1)
        return pixel_set(flat, labels, highest=255, order=order, channel_names=("intensity",))

    told = "" if seed is None else f", in the order of torch.manual_seed({seed})'s randperm(784)"
    return Dataset(
        name=name,
        train=part("train"),
        test=part("test"),
        description=f"28×28 handwritten digits, one pixel per step{told}",
        origin=_ORIGIN,
        extras={} if order is None else {"order": order},
    )


def _from_npz(path: Path) -> dict[str, np.ndarray]:
    return _checked(path, load_arrays(path, {"x_train": 3, "y_train": 1, "x_test": 3, "y_test": 1}))


def _from_idx(paths: tuple[Path, ...]) -> dict[str, np.ndarray]:
    return _checked(paths[0].parent, {key: read_idx(path) for key, path in zip(_KEYS, paths, strict=True)})


def _checked(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    for which in ("train", "test"):
        check_same_length(path, arrays, f"x_{which}", f"y_{which}")
        images = arrays[f"x_{which}"]
        if images.shape[1:] != (28, 28) or images.dtype != np.uint8:
            got = f"got {images.dtype} of shape {images.shape}"
            raise FileFormatError(path, f"expected x_{which} to hold 28×28 images of bytes", got)
    return arrays


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file of bytes: two zeros, type 8, the number of axes, big-endian sizes, then the values."""
    try:
        with gzip.open(path) as file:
            content = file.read()
    except DAMAGED as error:
        raise FileFormatError(path, "expected a gzipped IDX file", f"could not read it ({error})") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise FileFormatError(path, "expected an IDX file of bytes", f"got one that starts with {content[:4]!r}")
    axes = content[3]
    start = 4 + 4 * axes
    shape = struct.unpack(f">{axes}I", content[4:start]) if len(content) >= start else ()
    if not shape or len(content) != start + int(np.prod(shape)):
        raise FileFormatError(path, f"expected {shape} values after the header", f"got {max(len(content) - start, 0)}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _download(cache: Path) -> None:
    paths = tuple(fetch(URL + name, cache / "mnist" / name, sha256=digest) for name, digest in FILES.items())
    save_arrays(cache / FORMS[0][0], _from_idx(paths))
    for path in paths:
        path.unlink()


def _entry(name: str, title: str) -> Entry:
    return Entry(
        name=name,
        title=title,
        task="classification",
        steps="784",
        channels="1",
        classes="10",
        sizes="60000 / 10000",
        origin=_ORIGIN,
        license="CC BY-SA 3.0",
    )


SOURCE = Source(
    prefix="mnist",
    entries=(
        _entry("mnist", "MNIST, pixel by pixel"),
        _entry("mnist/permuted", "MNIST, pixels permuted as in rusch2021 (seed 5544)"),
        _entry("mnist/permuted-12008", "MNIST, pixels permuted as in erichson2021's last release (seed 12008)"),
    ),
    names=tuple(SEEDS),
    load=load,
    local=lambda places: tuple(SEEDS) if places.find(FORMS) else (),
)
