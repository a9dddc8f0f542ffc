"""Long sequences: cut to an affordable length, parts pooled, and made-up data shaped like sets that are not at hand."""

from dataclasses import replace

import numpy as np

from sostenuto.data.dataset import Dataset, SequenceSet


def cut(dataset: Dataset, longest: int) -> Dataset:
    """Keep the last ``longest`` steps of longer sequences, in every part.

    >>> cut(word_stand_in(0), 10).train.sequences[0].shape
    (10,)
    """

    def shortened(part: SequenceSet | None) -> SequenceSet | None:
        return None if part is None else replace(part, sequences=[sequence[-longest:] for sequence in part.sequences])

    train = shortened(dataset.train)
    assert train is not None
    return replace(dataset, train=train, validation=shortened(dataset.validation), test=shortened(dataset.test))


def leveled(dataset: Dataset) -> Dataset:
    """Bring every sequence to a root mean square of one, by a factor of its own: loud and quiet recordings alike.

    >>> wave = leveled(wave_stand_in(0, count=5, steps=40)).train.sequences[0]
    >>> round(float((wave**2).mean()), 3)
    1.0
    """

    def one_level(part: SequenceSet | None) -> SequenceSet | None:
        if part is None:
            return None
        loudness = [
            float(np.sqrt(np.mean(np.square(sequence, dtype=np.float64)))) or 1.0 for sequence in part.sequences
        ]
        return replace(
            part, sequences=[sequence / level for sequence, level in zip(part.sequences, loudness, strict=True)]
        )

    train = one_level(dataset.train)
    assert train is not None
    return replace(dataset, train=train, validation=one_level(dataset.validation), test=one_level(dataset.test))


def pooled(dataset: Dataset) -> Dataset:
    """Join the archive's parts into one, to be divided anew: papers that follow Morrill et al. 2021 split 70/15/15.

    >>> whole = pooled(wave_stand_in(0, count=20, steps=30))
    >>> len(whole.train), whole.test
    (20, None)
    """
    if dataset.test is None:
        return dataset
    parts = (dataset.train, dataset.test)
    sequences = [sequence for part in parts for sequence in part.sequences]
    targets = np.concatenate([np.asarray(part.targets) for part in parts])
    return replace(dataset, train=replace(dataset.train, sequences=sequences, targets=targets), test=None)


def wave_stand_in(
    seed: int, *, count: int = 259, steps: int = 17984, channels: int = 6, classes: int = 5, noise: float = 0.5
) -> Dataset:
    """Make up data of EigenWorms' shape: slow waves in noise, whose frequency is the class.

    Class k makes 4(k + 1) turns in all of the time, so that no short stretch tells it; phases are random.

    >>> data = wave_stand_in(0, count=10, steps=100)
    >>> data.train.sequences[0].shape, sorted(set(data.train.targets.tolist()))
    ((100, 6), ['0', '1', '2', '3', '4'])
    """
    turns = 4.0 * (1 + np.arange(classes))
    labels = np.arange(count) % classes
    return _made_up("worms", seed, steps, channels, noise, turns[labels], labels.astype(str), "classification")


def rate_stand_in(
    seed: int, *, count: int = 7949, steps: int = 4000, channels: int = 2, noise: float = 0.5, seconds: float = 32.0
) -> Dataset:
    """Make up data of BIDMC's shape: waves in noise, whose turns a minute, 10 to 30, are the target.

    >>> data = rate_stand_in(0, count=4, steps=50)
    >>> data.train.sequences[0].shape, bool((10 <= data.train.targets).all())
    ((50, 2), True)
    """
    rates = np.random.default_rng(seed + 1).uniform(10.0, 30.0, count)
    turns = rates * seconds / 60
    return _made_up("vital-signs", seed, steps, channels, noise, turns, rates, "regression")


def word_stand_in(seed: int, *, count: int = 1200, words: int = 50) -> Dataset:
    """Make up reviews: words 2 … are neutral, the last ten praise or blame, and the more frequent kind is the label.

    >>> data = word_stand_in(0)
    >>> data.train.is_tokens, len(data.train), len(data.test)
    (True, 900, 300)
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    sequences = []
    for label in labels:
        length = int(rng.integers(15, 60))
        text = rng.integers(2, words - 10, length)
        places = rng.permutation(length)[:7]
        opinions = rng.permutation([label] * 5 + [1 - label] * 2)
        text[places] = words - 10 + 5 * opinions + rng.integers(0, 5, 7)
        sequences.append(text.astype(np.int64))
    whole = SequenceSet(sequences, np.array(["negative", "positive"])[labels], "classification")
    border = 3 * count // 4
    return Dataset("words", whole.take(np.arange(border)), whole.take(np.arange(border, count)), description="made up")


def _made_up(
    name: str,
    seed: int,
    steps: int,
    channels: int,
    noise: float,
    turns: np.ndarray,
    targets: np.ndarray,
    task: str,
) -> Dataset:
    rng = np.random.default_rng(seed)
    time = np.linspace(0.0, 2 * np.pi, steps)

    def one(rate: float) -> np.ndarray:
        phases = rng.uniform(0, 2 * np.pi, channels)
        wave = np.sin(rate * time[:, None] + phases)
        return (wave + noise * rng.standard_normal(wave.shape)).astype(np.float32)

    train = SequenceSet([one(float(rate)) for rate in turns], targets, task)  # pyright: ignore[reportArgumentType]
    return Dataset(name, train, description="made up: waves in noise")


def folded(dataset: Dataset, channels: int) -> Dataset:
    """Read ``channels`` samples of a one-channel sequence as one step: 784 pixels become 98 steps of 8.

    >>> folded(wave_stand_in(0, count=5, steps=40, channels=1), 8).train.sequences[0].shape
    (5, 8)
    """

    def shaped(part: SequenceSet | None) -> SequenceSet | None:
        if part is None:
            return None
        return replace(
            part, sequences=[sequence.reshape(-1, channels) for sequence in part.sequences], channel_names=()
        )

    train = shaped(dataset.train)
    assert train is not None
    return replace(dataset, train=train, validation=shaped(dataset.validation), test=shaped(dataset.test))
