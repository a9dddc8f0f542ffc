import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.tasks import generate, windows
from sostenuto.models import baselines
from sostenuto.models.baselines import baseline_predictions, nearest_neighbor, previous_value, summary_ridge


def encoded(train: SequenceSet, test: SequenceSet, **options: Any) -> tuple[SequenceBatch, SequenceBatch, Encoding]:
    encoding = Encoding.fit(train, **options)
    return encoding.encode(train), encoding.encode(test), encoding


def corners(seed: int, count: int = 60) -> SequenceSet:
    """Make noisy sequences of unequal length around one of three corners."""
    rng = np.random.default_rng(seed)
    places = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    kinds = np.arange(count) % 3
    rows = [rng.normal(places[kind], 1.0, (int(rng.integers(5, 12)), 2)) for kind in kinds]
    return SequenceSet(rows, np.array(["origin", "right", "up"])[kinds], "classification")


# Nearest neighbor


def test_nearest_neighbor_agrees_with_all_distances() -> None:
    train, test = torch.randn(70, 6, 2), torch.randn(40, 6, 2)
    answers = torch.arange(70.0)[:, None]
    batch = SequenceBatch(train, torch.full((70,), 6), answers)
    got = nearest_neighbor(batch, SequenceBatch(test, torch.full((40,), 6)), "regression")
    expected = torch.cdist(test.flatten(1).double(), train.flatten(1).double()).argmin(1)
    assert torch.equal(got[:, 0].long(), expected)


def test_chunks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test, _ = encoded(corners(0), corners(1))
    whole = nearest_neighbor(train, test, "classification")
    monkeypatch.setattr(baselines, "_CELLS", 1)
    assert torch.equal(nearest_neighbor(train, test, "classification"), whole)


def test_a_training_sequence_is_its_own_neighbor_even_far_from_zero() -> None:
    rows = 1000.0 + 1e-3 * torch.randn(50, 30, 1)
    batch = SequenceBatch(rows, torch.full((50,), 30), torch.arange(50))
    assert torch.equal(nearest_neighbor(batch, batch, "classification"), torch.arange(50))


def test_unequal_lengths_are_compared_at_the_same_share_of_their_way() -> None:
    ramp = [np.linspace(0, 1, n)[:, None] for n in (5, 9, 33)]
    wave = [np.sin(6 * row) for row in ramp]
    train = SequenceBatch.from_sequences([ramp[1], wave[1], wave[1]], [0, 1, 1])
    test = SequenceBatch.from_sequences([ramp[0], ramp[2], wave[0], wave[2]])
    assert nearest_neighbor(train, test, "classification").tolist() == [0, 0, 1, 1]
    drawn = baselines._resampled(test.values, test.lengths, 7)
    np.testing.assert_allclose(drawn[1, :, 0], np.linspace(0, 1, 7), atol=1e-6)


def test_nearest_neighbor_refuses_tokens_and_steps() -> None:
    tokens = SequenceBatch(torch.tensor([[1, 2]]), torch.tensor([2]), torch.tensor([0]))
    with pytest.raises(InputError, match="expected channels of numbers for nearest neighbor, got tokens"):
        nearest_neighbor(tokens, tokens, "classification")
    with pytest.raises(InputError, match="expected one target per sequence for nearest neighbor, got one per step"):
        nearest_neighbor(tokens, tokens, "sequence")


# Ridge


def test_classes_by_place_are_found_by_both() -> None:
    train, test, encoding = encoded(corners(0), corners(1))
    assert test.targets is not None
    for answer in (
        nearest_neighbor(train, test, "classification"),
        summary_ridge(train, test, "classification", len(encoding.classes)),
    ):
        assert answer.dtype == torch.int64
        assert (answer == test.targets).float().mean() >= 0.95


def test_a_linear_target_of_the_summaries_is_recovered() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(int(rng.integers(4, 20)), 2)) for _ in range(120)]
    targets = np.stack([[3 * x[:, 0].mean() - x[-1, 1], x[:, 1].max()] for x in rows])
    train, test, encoding = encoded(
        SequenceSet(rows[:80], targets[:80], "regression"), SequenceSet(rows[80:], targets[80:], "regression")
    )
    got = encoding.decode_targets(summary_ridge(train, test, "regression"))
    np.testing.assert_allclose(got, targets[80:], atol=2e-3)


def test_words_decide_the_class_of_a_text() -> None:
    rng = np.random.default_rng(0)
    kinds = np.arange(80) % 2
    rows = [np.concatenate([rng.integers(10, 5000, 12), [2 + kind]]) for kind in kinds]
    data = SequenceSet(rows, kinds.astype(str), "classification")
    train, test, encoding = encoded(data, data.take(np.arange(40)), vocabulary_size=5000)
    done = baseline_predictions(train, test, encoding)
    assert [one.name for one in done] == ["most common class", "ridge on token counts"]
    assert torch.equal(done[1].predictions, torch.from_numpy(kinds[:40]))


def test_a_step_target_of_recent_values_is_recovered() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(int(rng.integers(10, 30)), 1)) for _ in range(30)]
    before = [np.concatenate([np.zeros((2, 1)), x[:-2]]) for x in rows]
    data = SequenceSet(rows, [2 * x - 5 * b for x, b in zip(rows, before, strict=True)], "sequence")
    train, test, encoding = encoded(data, data.take(np.arange(5)))
    answer = summary_ridge(train, test, "sequence")
    assert test.targets is not None
    assert answer.shape == test.targets.shape
    assert (answer[~test.mask] == 0).all()
    decoded, wanted = encoding.decode_targets(answer), encoding.decode_targets(test.targets)
    # The encoding shifts the channel, so the zeros before the start are not quite the values before the start.
    assert np.abs(decoded - wanted)[:, 2:].max() < 0.05


def test_step_classes_are_answered_with_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_MOST_STEPS", 100)
    for tokens in (False, True):
        data = generate("copying", num_train=80, num_test=10, num_validation=0, delay=6, num_items=3, tokens=tokens)
        assert data.test is not None
        train, test, encoding = encoded(data.train, data.test)
        done = baseline_predictions(train, test, encoding)
        assert [one.name for one in done] == ["most common class", "ridge on recent values"]
        answer = done[1].predictions
        assert answer.dtype == torch.int64
        assert answer.shape == (10, 12)
        # Blank until the signal: that much is seen without memory.
        assert encoding.decode_classes(answer[:, 3:8]).tolist() == [["0"] * 5] * 10


# Forecasts


def test_the_previous_value_is_repeated_in_its_own_unit() -> None:
    series = np.cumsum(np.random.default_rng(0).normal(size=(200, 2)), axis=0) * [1.0, 50.0]
    data = windows(series, 7, horizon=3)
    for options in ({}, {"scaling": "minmax"}, {"missing": "mask"}):
        _, test, encoding = encoded(data, data, **options)
        got = encoding.decode_targets(previous_value(test, encoding))
        expected = np.stack([row[-1:].repeat(3, axis=0) for row in data.sequences])
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_forecasts_are_compared_with_the_previous_value_and_the_ridge() -> None:
    data = generate("sinusoid", num_train=200, num_test=300)
    assert data.test is not None
    train, test, encoding = encoded(data.train, data.test)
    previous, ridge = baseline_predictions(train, test, encoding)
    assert (previous.name, ridge.name) == ("previous value", "ridge on summary features")
    assert test.targets is not None
    errors = [float((one.predictions - test.targets).square().mean()) for one in (previous, ridge)]
    # The last value has the noise of two observations; the mean and the slope of a window average it out.
    assert errors[1] < errors[0] < 0.02
    assert min(previous.seconds, ridge.seconds) >= 0


def test_the_previous_value_needs_a_forecast_of_the_inputs() -> None:
    _, test, encoding = encoded(corners(0), corners(1))
    with pytest.raises(InputError, match="expected a forecast of the 2 input channels for the previous value"):
        previous_value(test, encoding)


# Both together


def test_the_adding_problem_is_beyond_the_baselines() -> None:
    data = generate("adding", num_train=500, num_validation=0, num_test=300, num_steps=30)
    assert data.test is not None
    train, test, encoding = encoded(data.train, data.test)
    truth = np.asarray(data.test.targets)
    for one in baseline_predictions(train, test, encoding):
        error = float(((encoding.decode_targets(one.predictions) - truth) ** 2).mean())
        assert error > 0.12


def test_too_much_work_for_nearest_neighbor_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_MOST_OPERATIONS", 60 * 60 * 24 / 4)
    train, test, encoding = encoded(corners(0), corners(1))
    done = baseline_predictions(train, test, encoding)
    assert [one.name for one in done] == ["most common class", "1-nearest neighbor", "ridge on summary features"]
    assert done[1].description == "Euclidean distance, 15 of 60 training sequences"


def test_missing_targets_are_refused() -> None:
    batch = SequenceBatch(torch.zeros(2, 3, 1), torch.tensor([3, 3]))
    with pytest.raises(InputError, match="expected training targets for a baseline, got none"):
        summary_ridge(batch, batch, "regression")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "error"), [("Beef", 0.3333), ("ArrowHead", 0.2), ("Coffee", 0.0), ("GunPoint", 0.0867), ("ECG200", 0.12)]
)
def test_nearest_neighbor_has_the_published_error(real_data: Path, name: str, error: float) -> None:
    """The UCR archive (Dau et al. 2019) prints the error of 1-NN with Euclidean distance for every set."""
    parts = []
    for part in ("TRAIN", "TEST"):
        with gzip.open(real_data / "ucr" / name / f"{name}_{part}.tsv.gz", "rt") as file:
            table = np.loadtxt(file)
        parts.append(SequenceSet(list(table[:, 1:, None]), table[:, 0], "classification"))
    train, test, _ = encoded(*parts)
    assert test.targets is not None
    wrong = nearest_neighbor(train, test, "classification") != test.targets
    assert float(wrong.double().mean()) == pytest.approx(error, abs=5e-5)
