"""Memory along trajectories, under slow inputs, and of answers: nothing found may be less than what is proved."""

import math

import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor
from sostenuto.nn import LipschitzRNN, UnICORNN
from sostenuto.theory import answer_window, memory_along, slow_input_share


def small_layer():
    torch.manual_seed(0)
    layer = UnICORNN(2, 8, step_size=0.4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh_l0.uniform_(-0.5, 2)
        layer.weight_ih_l0.mul_(4)
    return layer


@pytest.mark.parametrize("radius", [0.01, 0.3])
def test_a_ball_around_a_trajectory_is_covered(radius):
    layer = small_layer()
    x = torch.randn(3, 60, 2, dtype=torch.float64)
    found = memory_along(layer, x, radius=radius)
    step = layer.effective_step().detach()

    def size(y, z, p):
        return torch.sqrt(p * y**2 - step * p * y * z + z**2)

    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        y, z = torch.randn(2, 1, 3, 8, generator=draw, dtype=torch.float64)
        first = size(y, z, found.reference[:, 0])
        y, z = y / first * radius, z / first * radius
        ends = [layer(x, start)[1] for start in ((y, z), (torch.zeros_like(y), torch.zeros_like(z)))]
        dy, dz = (a[0] - b[0] for a, b in zip(ends[0], ends[1], strict=True))
        left = size(dy, dz, found.reference[:, -1]).detach() / radius
        assert bool((left >= found.share(60)).all())


def test_along_data_far_more_is_proved_than_for_every_input():
    layer = small_layer()
    proved = torch.tensor(layer.memory_certificate().per_unit)
    quiet = memory_along(layer, torch.zeros(1, 40, 2).double())
    assert quiet.rates.shape == (1, 40, 8)
    assert float(quiet.share(40).min()) > 0.99  # the curvature stands still
    slow = memory_along(layer, torch.linspace(0, 3, 400).double().expand(1, 2, 400).mT)
    assert bool((slow.half_lives[0] >= torch.minimum(10 * proved, torch.tensor(400.0)).floor()).all())
    found = quiet
    with pytest.raises(InputError, match="at most 40"):
        found.share(30, start=20)


def test_slow_inputs_leave_what_is_proved():
    """Curvatures that swing three times, slowly or at once, over 20 000 steps; the worst start is looked for."""
    h, w, alpha, swings = 0.1, 0.5, 1.0, 3
    proved = float(slow_input_share(h, w, alpha, swings))
    for period in (1, 7, 300, 3000):
        ramp = np.concatenate([np.linspace(0, 1, period), np.ones(16), np.linspace(1, 0, period), np.zeros(16)])
        q = alpha + w * np.tile(ramp, swings)
        product = np.eye(2)
        for value in q:
            product = np.array([[1 - h**2 * value, h], [-h * value, 1]]) @ product
        root = np.linalg.cholesky(np.array([[alpha, -h * alpha / 2], [-h * alpha / 2, 1]])).T
        least = np.linalg.svd(root @ product @ np.linalg.inv(root))[1][-1]
        assert proved <= least <= 1 + 1e-9
    assert math.isnan(slow_input_share(0.1, -2.0, 1.0, 1))


def certified_classifier():
    torch.manual_seed(0)
    layer = LipschitzRNN(2, 12, gamma=(3.0, 0.0), step_size=0.1, batch_first=True)
    with torch.no_grad():
        layer.weight_ih_l0.mul_(5)
    model = SequenceClassifier(layer, 3)
    with torch.no_grad():
        model.head.weight.mul_(20)
    return model


def test_what_is_older_than_the_window_changes_no_probability():
    """10⁴ sequences, and some whose old part is moved by gradients: cut at the window, and with another past."""
    model, epsilon = certified_classifier(), 0.01
    window = answer_window(model, epsilon)
    assert 10 < window.steps < 100
    old, torch_seed = 60, torch.Generator().manual_seed(1)
    x = 3 * torch.randn(10_000, old + window.steps, 2, generator=torch_seed)
    with torch.no_grad():
        whole = model(x).softmax(-1)
        cut = model(x[:, -window.steps :]).softmax(-1)
        assert float((whole - cut).abs().max()) <= epsilon
    few = x[:32]
    past = few[:, :old].clone().requires_grad_()
    target = model(few).softmax(-1).detach()
    moved = torch.zeros(())
    for _ in range(8):
        moved = (model(torch.cat([past, few[:, old:]], 1)).softmax(-1) - target).abs().sum()
        (gradient,) = torch.autograd.grad(moved, past)
        past = (past + 10 * gradient.sign()).detach().requires_grad_()
    with torch.no_grad():
        other = model(torch.cat([past, few[:, old:]], 1)).softmax(-1)
    assert float((other - target).abs().max()) <= epsilon


def test_a_window_in_seconds_and_reasons_without_one():
    model = certified_classifier()
    timed = answer_window(model, 0.01, spans=(0.5, 1.0))
    assert timed.seconds == timed.steps
    assert "in the unit of the time spans" in timed.summary()
    forgetless = SequenceClassifier(UnICORNN(2, 4, batch_first=True), 3)
    assert "not proved to forget" in answer_window(forgetless, 0.01).summary()
    with pytest.raises(InputError, match="last state"):
        answer_window(SequenceClassifier(LipschitzRNN(2, 4, batch_first=True), 3, readout="mean"), 0.01)


def test_a_window_is_about_the_answers_a_model_gives():
    """Numbers move by ‖C‖, probabilities by √2/4 of that; of other code nothing is known."""
    classes, layer = certified_classifier(), certified_classifier().layer
    numbers = SequenceRegressor(layer, 3)
    with torch.no_grad():
        numbers.head.weight.copy_(classes.head.weight)
    window = answer_window(numbers, 0.01)
    assert window.steps > answer_window(classes, 0.01).steps
    x = 3 * torch.randn(64, window.steps + 30, 2)
    with torch.no_grad():
        assert float((numbers(x) - numbers(x[:, -window.steps :])).abs().max()) <= 0.01

    class Louder(SequenceClassifier):
        def forward(self, *args):
            return 100 * super().forward(*args)

    assert "Louder changes forward" in answer_window(Louder(layer, 3), 0.01).reason
    classes.head.register_forward_hook(lambda _, __, scores: 100 * scores)
    assert "Linear has a hook" in answer_window(classes, 0.01).reason
    with torch.no_grad():
        numbers.head.weight[0, 0] = math.nan
    assert "not finite" in answer_window(numbers, 0.01).reason
