"""What is written in a format comes back from its reader, value for value."""

import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sostenuto.data.dataset import SequenceSet
from sostenuto.data.files import read
from sostenuto.data.files.targets import is_missing, label

FINITE = st.floats(allow_nan=False, allow_infinity=False)
OPTIONAL = st.one_of(FINITE, st.just(float("nan")))
NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=6).filter(
    lambda name: label(name) == name and not is_missing(name)
)
WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,5}", fullmatch=True).filter(lambda name: not is_missing(name))


@st.composite
def ragged(draw, *, channels: int | None = None, last: Any = OPTIONAL, most: int = 5) -> list[np.ndarray]:
    """Draw some sequences of shape (time, channel), all with the same channels, the final step from ``last``."""
    width = channels or draw(st.integers(1, 3))
    lengths = draw(st.lists(st.integers(1, most), min_size=1, max_size=5))
    sequences = [draw(arrays(float, (length, width), elements=OPTIONAL)) for length in lengths]
    for sequence in sequences:
        sequence[-1] = draw(arrays(float, width, elements=last))
    return sequences


def cell(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))


def rows_to_csv(rows: list[list[str]]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue().encode()


def read_back(name: str, content: bytes, **options: Any) -> SequenceSet:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return read(path, **options)


def _told(target: Any) -> str:
    """Write a target down; zero has one sign, as whole numbers at every step are kept as integers."""
    return str(target + 0.0 if isinstance(target, float) else target)


def assert_same(data: SequenceSet, sequences: list[np.ndarray], targets: list[Any]) -> None:
    assert len(data) == len(sequences)
    for read_sequence, sequence in zip(data.sequences, sequences, strict=True):
        np.testing.assert_array_equal(read_sequence, sequence)
    assert data.targets is not None
    assert [_told(target) for target in data.targets] == [_told(target) for target in targets]


@given(ragged(channels=1, last=FINITE), st.data())
def test_wide_csv(sequences, data):
    labels = data.draw(st.lists(NAMES, min_size=len(sequences), max_size=len(sequences)))
    steps = max(len(sequence) for sequence in sequences)
    rows = [["target", *[f"t{step}" for step in range(steps)]]]
    for name, sequence in zip(labels, sequences, strict=True):
        rows.append([name, *[cell(value) for value in sequence[:, 0]], *[""] * (steps - len(sequence))])
    assert_same(read_back("data.csv", rows_to_csv(rows), task="classification"), sequences, labels)


@given(ragged(), st.data())
def test_long_csv(sequences, data):
    numbers = data.draw(st.lists(FINITE, min_size=len(sequences), max_size=len(sequences)))
    width = sequences[0].shape[1]
    steps = [(index, step) for index, sequence in enumerate(sequences) for step in range(len(sequence))]
    shuffled = data.draw(st.permutations(steps))
    rows = [["time", *[f"c{channel}" for channel in range(width)], "target", "series"]]
    rows += [
        [str(step), *[cell(value) for value in sequences[index][step]], repr(numbers[index]), f"s{index}"]
        for index, step in shuffled
    ]
    first_seen = list(dict.fromkeys(index for index, _ in shuffled))
    back = read_back("data.csv", rows_to_csv(rows), task="regression")
    assert_same(back, [sequences[index] for index in first_seen], [numbers[index] for index in first_seen])
    assert back.timespans is None


@given(ragged(channels=1, last=FINITE), st.data())
def test_tsv(sequences, data):
    numbers = data.draw(st.lists(FINITE, min_size=len(sequences), max_size=len(sequences)))
    steps = max(len(sequence) for sequence in sequences)
    lines = []
    for number, sequence in zip(numbers, sequences, strict=True):
        cells = [repr(number), *[repr(float(value)) for value in sequence[:, 0]], *["NaN"] * (steps - len(sequence))]
        lines.append("\t".join(cells))
    assert_same(read_back("data.tsv", "\n".join(lines).encode(), task="regression"), sequences, numbers)


@given(ragged(), st.data())
def test_ts(sequences, data):
    classes = data.draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    labels = data.draw(st.lists(st.sampled_from(classes), min_size=len(sequences), max_size=len(sequences)))
    lines = [f"@dimensions {sequences[0].shape[1]}", f"@classLabel true {' '.join(classes)}", "@data"]
    for name, sequence in zip(labels, sequences, strict=True):
        parts = [
            ",".join("?" if np.isnan(value) else repr(float(value)) for value in channel) for channel in sequence.T
        ]
        lines.append(":".join([*parts, name]))
    assert_same(read_back("data.ts", "\n".join(lines).encode()), sequences, labels)


@given(ragged(), st.data(), st.sampled_from(["btc", "bct"]))
def test_npz(sequences, data, layout):
    labels = data.draw(st.lists(NAMES, min_size=len(sequences), max_size=len(sequences)))
    lengths = [len(sequence) for sequence in sequences]
    padded = np.full((len(sequences), max(lengths), sequences[0].shape[1]), np.inf)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    buffer = io.BytesIO()
    np.savez(buffer, X=padded if layout == "btc" else padded.transpose(0, 2, 1), y=np.array(labels), lengths=lengths)
    back = read_back("data.npz", buffer.getvalue(), layout=layout, task="classification")
    assert_same(back, sequences, labels)


@given(ragged(), st.data())
def test_long_parquet(sequences, data):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    labels = data.draw(st.lists(NAMES, min_size=len(sequences), max_size=len(sequences)))
    stacked = np.concatenate(sequences)
    lengths = [len(sequence) for sequence in sequences]
    columns: dict[str, Any] = {f"c{channel}": stacked[:, channel] for channel in range(stacked.shape[1])}
    columns["series"] = np.repeat(np.arange(len(sequences)), lengths)
    columns["target"] = [name for name, length in zip(labels, lengths, strict=True) for _ in range(length)]
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    assert_same(read_back("data.parquet", buffer.getvalue(), task="classification"), sequences, labels)
