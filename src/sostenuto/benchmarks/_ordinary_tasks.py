"""The tasks of the comparison of layers: what a user meets on an ordinary day, drawn from a seed or read from disk."""

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.datasets import load_digits
from torch import Tensor

from sostenuto.data.dataset import SequenceSet
from sostenuto.data.registry import load


class Batch(NamedTuple):
    """Inputs, targets, the time before each step where times are irregular, and lengths where they differ."""

    x: Float[Tensor, "B T C"]
    y: Tensor
    spans: Float[Tensor, "B T"] | None = None
    lengths: Int[Tensor, " B"] | None = None


@dataclass(frozen=True)
class Task:
    """A task: ``draw(count, generator, test)`` gives a batch; targets are classes or numbers, per step or at the end.

    ``last`` says how many of the last steps have a target; 0 means one target for the whole sequence.
    """

    name: str
    channels: int
    outputs: int
    classes: bool
    last: int
    batch: int
    draw: Callable[[int, torch.Generator, bool], Batch]
    score: str


def next_character(length: int = 128) -> Task:
    """Predict the next character of Python's own standard library; scored in bits."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    names = sorted(folder.glob("*.py"))
    text = "\n".join(path.read_text("utf-8", "ignore") for path in names)
    kept = "".join(sorted({letter for letter in text if letter.isascii() and (letter.isprintable() or letter == "\n")}))
    codes = np.zeros(256, np.int64)
    for code, letter in enumerate(kept):
        codes[ord(letter)] = code
    raw = np.frombuffer("".join(letter for letter in text if letter in set(kept)).encode("ascii"), np.uint8)
    tokens = torch.from_numpy(codes[raw])
    border = int(0.95 * len(tokens))

    def draw(count: int, generator: torch.Generator, test: bool) -> Batch:
        low, high = (border, len(tokens) - length - 1) if test else (0, border - length - 1)
        places = torch.randint(low, high, (count, 1), generator=generator) + torch.arange(length + 1)
        rows = tokens[places]
        return Batch(torch.nn.functional.one_hot(rows[:, :-1], len(kept)).float(), rows[:, 1:])

    return Task("next character", len(kept), len(kept), True, length, 32, draw, "bits")


def irregular_sine(length: int = 100) -> Task:
    """Predict a sine's value at the next of irregular times."""

    def draw(count: int, generator: torch.Generator, test: bool) -> Batch:  # noqa: ARG001
        spans = 0.2 + 1.6 * torch.rand(count, length + 1, generator=generator)
        rate = 0.2 + 0.8 * torch.rand(count, 1, generator=generator)
        wave = torch.sin(rate * spans.cumsum(1) + 6.2832 * torch.rand(count, 1, generator=generator))
        return Batch(torch.stack([wave[:, :-1], spans[:, 1:]], -1), wave[:, 1:, None], spans[:, :-1])

    return Task("sine at irregular times", 2, 1, False, length, 32, draw, "mse")


def adding(length: int = 500) -> Task:
    """Add the two marked numbers of a sequence."""

    def draw(count: int, generator: torch.Generator, test: bool) -> Batch:  # noqa: ARG001
        values, marks = torch.rand(count, length, generator=generator), torch.zeros(count, length)
        half = length // 2
        first = torch.randint(0, half, (count, 1), generator=generator)
        second = torch.randint(half, length, (count, 1), generator=generator)
        marks.scatter_(1, torch.cat([first, second], 1), 1.0)
        return Batch(torch.stack([values, marks], -1), (values * marks).sum(1, keepdim=True))

    return Task(f"adding, {length} steps", 2, 1, False, 0, 32, draw, "mse")


def copying(delay: int = 200, symbols: int = 8, items: int = 10) -> Task:
    """Repeat ten symbols after a delay; scored by the share of wrong ones."""
    length = delay + 2 * items

    def draw(count: int, generator: torch.Generator, test: bool) -> Batch:  # noqa: ARG001
        queries = torch.randint(0, symbols, (count, items), generator=generator)
        tokens = torch.full((count, length), symbols)
        tokens[:, :items], tokens[:, -items] = queries, symbols + 1
        return Batch(torch.nn.functional.one_hot(tokens, symbols + 2).float(), queries)

    return Task(f"copying, delay {delay}", symbols + 2, symbols, True, items, 32, draw, "error")


def mackey_glass(length: int = 300, ahead: int = 15) -> Task:
    """Forecast the chaotic Mackey–Glass series fifteen steps ahead."""
    value = torch.full((512,), 1.2) + 0.2 * torch.randn(512, generator=torch.Generator().manual_seed(0))
    past, series = [value.clone() for _ in range(170)], []
    for step in range(10 * (length + ahead + 200)):
        late = past[step % 170].clone()
        past[step % 170] = value.clone()
        value = value + 0.1 * (0.2 * late / (1 + late**10) - 0.1 * value)
        if step % 10 == 0:
            series.append(value.clone())
    paths = (torch.stack(series, 1)[:, 200:] - 0.93) / 0.23

    def draw(count: int, generator: torch.Generator, test: bool) -> Batch:
        rows = torch.randint(0, 64, (count,), generator=generator) + (448 if test else 0)
        rows = rows if test else torch.randint(0, 448, (count,), generator=generator)
        path = paths[rows]
        return Batch(path[:, :length, None], path[:, ahead : ahead + length, None])

    return Task("Mackey–Glass, 15 ahead", 1, 1, False, length, 32, draw, "mse")


def sequential_digits(padding: int = 0, permuted: bool = False) -> Task:
    """Read 8×8 digits pixel by pixel, followed by ``padding`` steps of noise; scored by the share of wrong ones.

    ``permuted`` pixels come in one random order, the same for all digits.
    """
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = torch.from_numpy(images[order] / 8 - 1).float()[..., None], torch.from_numpy(labels[order]).long()
    if permuted:
        images = images[:, np.random.default_rng(1).permutation(64)]

    def draw(count: int, generator: torch.Generator, test: bool) -> Batch:
        rows = torch.randint(0, 1400, (count,), generator=generator)
        rows = torch.arange(1400, len(labels)) if test else rows
        noise = torch.randn(len(rows), padding, 1, generator=generator)
        return Batch(torch.cat([images[rows], noise], 1), labels[rows])

    name = (
        ("permuted " if permuted else "")
        + "digits, pixel by pixel"
        + (f", then noise until {64 + padding}" if padding else "")
    )
    return Task(name, 1, 10, True, 0, 32, draw, "error")


def japanese_vowels() -> Task:
    """Tell nine speakers apart by 12 channels of unequal lengths; scored by the share of wrong ones."""
    data = load("uea/JapaneseVowels")
    classes = np.unique(np.asarray(data.train.targets))
    test_part = data.test
    assert test_part is not None
    longest = max(len(sequence) for part in (data.train, test_part) for sequence in part.sequences)
    mean = np.concatenate(data.train.sequences).mean(0)
    deviation = np.concatenate(data.train.sequences).std(0)

    def gathered(part: SequenceSet) -> Batch:
        x = torch.zeros(len(part), longest, 12)
        for row, sequence in enumerate(part.sequences):
            x[row, : len(sequence)] = torch.as_tensor((sequence - mean) / deviation)
        lengths = torch.tensor([len(sequence) for sequence in part.sequences])
        return Batch(x, torch.from_numpy(np.searchsorted(classes, np.asarray(part.targets))), None, lengths)

    parts = gathered(data.train), gathered(test_part)

    def draw(count: int, generator: torch.Generator, test: bool) -> Batch:
        x, y, _, lengths = parts[test]
        rows = torch.arange(len(y)) if test else torch.randint(0, len(y), (count,), generator=generator)
        assert lengths is not None
        return Batch(x[rows], y[rows], None, lengths[rows])

    return Task("JapaneseVowels", 12, 9, True, 0, 32, draw, "error")


def spoken_digits(frame: int = 20, frames: int = 250) -> Task:
    """Tell ten spoken digits apart by raw audio, ``frame`` samples per step; scored by the share of wrong ones."""
    data = load("fsdd")
    test_part = data.test
    assert test_part is not None
    deviation = float(np.concatenate(data.train.sequences).std())

    def gathered(part: SequenceSet) -> Batch:
        x = torch.zeros(len(part), frames, frame)
        lengths = torch.tensor([min(len(sequence) // frame, frames) for sequence in part.sequences])
        for row, (sequence, length) in enumerate(zip(part.sequences, lengths.tolist(), strict=True)):
            x[row, :length] = torch.as_tensor(sequence[: length * frame] / deviation).view(length, frame)
        return Batch(x, torch.tensor([int(target) for target in np.asarray(part.targets)]), None, lengths)

    parts = gathered(data.train), gathered(test_part)

    def draw(count: int, generator: torch.Generator, test: bool) -> Batch:
        x, y, _, lengths = parts[test]
        rows = torch.arange(len(y)) if test else torch.randint(0, len(y), (count,), generator=generator)
        assert lengths is not None
        return Batch(x[rows], y[rows], None, lengths[rows])

    return Task(f"spoken digits, raw audio in frames of {frame}", frame, 10, True, 0, 32, draw, "error")


TASKS: dict[str, Callable[[], Task]] = {
    "characters": next_character,
    "sine": irregular_sine,
    "adding": adding,
    "long adding": lambda: adding(2000),
    "copying": copying,
    "long copying": lambda: copying(1000),
    "mackey-glass": mackey_glass,
    "permuted digits": lambda: sequential_digits(permuted=True),
    "vowels": japanese_vowels,
    "spoken digits": spoken_digits,
    "digits": sequential_digits,
    "padded digits": lambda: sequential_digits(436),
}
