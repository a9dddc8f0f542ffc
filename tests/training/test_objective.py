import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.training.config import TrainingConfig
from sostenuto.training.objective import Objective

LENGTHS = torch.tensor([5, 1, 3])
WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.1])


def batch(targets: torch.Tensor, steps: bool) -> SequenceBatch:
    return SequenceBatch(torch.zeros(3, 5, 1), LENGTHS, targets, has_step_targets=steps)


def mean(objective: Objective, prediction: torch.Tensor, data: SequenceBatch) -> float:
    return float(objective.losses(prediction, data).sum() / objective.units(data).sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@given(seed=st.integers(0, 20))
def test_cross_entropy_is_torchs(smoothing, weights, seed):
    torch.manual_seed(seed)
    scores, targets = torch.randn(3, 4), torch.randint(4, (3,))
    objective = Objective(classes=True, steps=False, class_weights=weights, label_smoothing=smoothing)
    expected = F.cross_entropy(scores, targets, weight=weights, label_smoothing=smoothing, reduction="sum") / 3
    assert mean(objective, scores, batch(targets, False)) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@given(seed=st.integers(0, 20))
def test_cross_entropy_of_steps_is_torchs_over_the_true_ones(smoothing, seed):
    torch.manual_seed(seed)
    scores, targets = torch.randn(3, 5, 4), torch.randint(4, (3, 5))
    data = batch(targets, True)
    scores[~data.mask] = 1e30
    objective = Objective(classes=True, steps=True, label_smoothing=smoothing)
    expected = F.cross_entropy(scores[data.mask], targets[data.mask], label_smoothing=smoothing)
    assert mean(objective, scores, data) == pytest.approx(float(expected), rel=1e-5)
    right = (scores.argmax(-1) == targets)[data.mask].float().mean()
    got = objective.finish(float(objective.metrics(scores, data).sum()), float(objective.units(data).sum()))
    assert got == pytest.approx(float(right))


@given(seed=st.integers(0, 20))
def test_squared_error_of_steps_is_torchs_over_the_true_ones(seed):
    torch.manual_seed(seed)
    prediction, targets = torch.randn(3, 5, 2), torch.randn(3, 5, 2)
    data = batch(targets, True)
    prediction[~data.mask] = torch.inf
    objective = Objective(classes=False, steps=True, target_scale=(2.0, 10.0))
    assert mean(objective, prediction, data) == pytest.approx(
        float(F.mse_loss(prediction[data.mask], targets[data.mask])), rel=1e-5
    )
    unit = torch.tensor([2.0, 10.0])
    expected = F.mse_loss(prediction[data.mask] * unit, targets[data.mask] * unit).sqrt()
    got = objective.finish(float(objective.metrics(prediction, data).sum()), float(objective.units(data).sum()))
    assert got == pytest.approx(float(expected), rel=1e-5)


def test_forecasts_are_compared_whole():
    prediction, targets = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    objective = Objective(classes=False, steps=False, target_scale=(1.0, 3.0) * 4)
    assert mean(objective, prediction, batch(targets, False)) == pytest.approx(
        float(F.mse_loss(prediction, targets)), rel=1e-5
    )


def test_gradients_ignore_the_padding():
    prediction = torch.randn(3, 5, 2, requires_grad=True)
    data = batch(torch.randn(3, 5, 2), True)
    Objective(classes=False, steps=True, target_scale=(1.0, 1.0)).losses(prediction, data).sum().backward()
    assert prediction.grad is not None
    assert prediction.grad[~data.mask].count_nonzero() == 0
    assert bool((prediction.grad[data.mask] != 0).all())


def test_the_metric_is_in_the_targets_own_unit():
    rng = np.random.default_rng(0)
    train = SequenceSet([rng.normal(size=(4, 1)) for _ in range(8)], 1000 + 50 * rng.normal(size=8))
    encoding = Encoding.fit(train)
    data = encoding.encode(train)
    assert data.targets is not None
    objective = Objective.of(encoding, TrainingConfig(), data)
    got = objective.finish(float(objective.metrics(torch.zeros(8, 1), data).sum()), 8.0)
    assert (objective.metric, objective.higher_is_better) == ("rmse", False)
    assert got == pytest.approx(float(np.std(np.asarray(train.targets))), rel=1e-5)


def test_balanced_weights_make_every_class_count_the_same():
    names = np.array(["a"] * 6 + ["b"] * 3 + ["c"] * 1)
    train = SequenceSet([np.zeros((3, 1))] * 10, names)
    encoding = Encoding.fit(train)
    data = encoding.encode(train)
    objective = Objective.of(encoding, TrainingConfig(class_weights="balanced", label_smoothing=0.1), data)
    assert objective.class_weights is not None
    torch.testing.assert_close(objective.class_weights, torch.tensor([10 / 18, 10 / 9, 10 / 3]))
    assert objective.label_smoothing == 0.1
    assert Objective.of(encoding, TrainingConfig(), data).class_weights is None


def test_balanced_weights_of_steps_do_not_count_padding():
    train = SequenceSet([np.zeros((4, 1)), np.zeros((1, 1))], [np.array([1, 1, 1, 0]), np.array([0])], "sequence")
    encoding = Encoding.fit(train)
    objective = Objective.of(encoding, TrainingConfig(class_weights="balanced"), encoding.encode(train))
    assert objective.class_weights is not None
    torch.testing.assert_close(objective.class_weights, torch.tensor([5 / 4, 5 / 6]))
