"""What is proved of residual blocks: rates together, windows, directions; attacked where it is most likely to break."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import DampedOscillators, Stack
from sostenuto.nn.certificates.blocks import GELU_SLOPE, NORM_EPSILON
from sostenuto.theory import answer_window

F64 = torch.float64
KINDS = {
    "damped": {"time_scales": (1.0, 6.0)},
    "clock": {"time_scales": (1.0, 3.0), "clock": True},
    "lipschitz": {"layer": "lipschitz", "layer_options": {"gamma": (4.0, 0.5), "step_size": 0.1}},
    "cornn": {"layer": "cornn", "layer_options": {"gamma": 2.0, "epsilon": 3.0, "step_size": 0.1}},
}


def blocks(kind, seed, layers=2, **options):
    torch.manual_seed(seed)
    made = Stack(2, 6, layers, batch_first=True, dtype=F64, **KINDS[kind], **options)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "recurrence" not in name:
                parameter.add_((0.1 if "_clock" in name else 0.5) * torch.randn_like(parameter))
    return made


def test_the_slopes_that_the_proof_counts_on():
    x = torch.linspace(-12, 12, 200_001, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.gelu(x, approximate="tanh").sum(), x)
    # Between points 10⁻⁴ apart the slope moves by less than 2·10⁻⁴, as |GELU″| stays below 1.
    assert float(slope.abs().max()) + 2e-4 < GELU_SLOPE
    u = (torch.randn(1000, 6, dtype=F64) * torch.logspace(-6, 2, 1000, dtype=F64)[:, None]).requires_grad_()
    normed = F.layer_norm(u, (6,))
    assert float(normed.detach().norm(dim=-1).max()) <= 6**0.5
    assert float(normed.detach().abs().max()) <= 5**0.5
    for column in range(6):
        (gradient,) = torch.autograd.grad(normed[:, column].sum(), u, retain_graph=True)
        assert float(gradient.norm(dim=-1).max()) <= NORM_EPSILON**-0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_what_is_older_than_the_window_moves_no_output(kind, layers):
    """Pasts that are random, of one sign or growing, and recent inputs that are silent or random."""
    made, epsilon = blocks(kind, layers, layers), 1e-3
    window = made.memory_certificate().window(epsilon)
    assert window.steps is not None
    assert window.steps < 2000
    recent = torch.randn(4, window.steps, 2, dtype=F64)
    recent[0] = 0  # the norm's slope is steepest where nothing is read
    end = made(recent)[0][:, -1].detach()
    pasts = [scale * torch.randn(4, 40, 2, dtype=F64) for scale in (0.1, 1.0, 100.0)]
    pasts += [torch.full((4, 40, 2), 3.0, dtype=F64), pasts[1].cumsum(1)]
    for past in pasts:
        moved = made(torch.cat([past, recent], 1))[0][:, -1].detach() - end
        assert float(moved.norm(dim=-1).max()) <= epsilon


@pytest.mark.parametrize("kind", KINDS)
def test_no_past_breaks_a_block_by_gradients(kind):
    """Short recent inputs: what the rates and gains allow after n steps bounds what gradients can move."""
    made = blocks(kind, 5, 2)
    found = made.memory_certificate()
    for steps in (1, 4, 12):
        recent = torch.zeros(3, steps, 2, dtype=F64)
        recent[1:] = torch.randn(2, steps, 2, dtype=F64)
        past = torch.randn(3, 30, 2, dtype=F64).requires_grad_()
        end, largest = made(recent)[0][:, -1].detach(), torch.zeros(3, dtype=F64)
        for _ in range(8):
            moved = (made(torch.cat([past, recent], 1))[0][:, -1] - end).norm(dim=-1)
            largest = torch.maximum(largest, moved.detach())
            (gradient,) = torch.autograd.grad(moved.sum(), past)
            past = (past + 0.5 * gradient.sign()).detach().requires_grad_()
        matrix, answer = found._cascade()
        start = np.array([2 * level.reach for level in found.levels])
        assert float(largest.max()) <= answer @ np.linalg.matrix_power(matrix, steps) @ start


@pytest.mark.parametrize("kind", ["damped", "clock"])
def test_states_of_all_blocks_forget_together(kind):
    made = blocks(kind, 1, 3)
    found = made.memory_certificate()
    assert found.forgets_at_most is not None
    steps = 200
    x = torch.randn(8, steps, 2, dtype=F64)
    starts = [tuple(torch.randn(3, 8, 6, dtype=F64) for _ in range(2)) for _ in range(2)]
    sizes = []
    for states in (starts, [made(x, start)[1] for start in starts]):
        gaps = [one - other for one, other in zip(*states, strict=True)]
        sizes.append(torch.hypot(*gaps).norm(dim=-1).amax(0).detach())
    high = found.curves([steps])[1][0]
    assert np.isfinite(high)
    assert bool((sizes[1] <= high * sizes[0]).all())


def test_a_clock_is_within_the_certificates_range():
    """Inputs that drive the clock to either end, in the direction of k and against it."""
    made = blocks("clock", 3, 1)
    low, high = made._passing_range(0, False)
    g, k = made.weight("vector_norm", 0, False), made.vector_clock_l0
    read = (g * k - (g * k).mean()).detach() * torch.tensor([-1e3, -1.0, 1.0, 1e3])[:, None]
    passing = made._passing_time(0, False, F.layer_norm(read.to(F64), (6,), g, made.bias_norm_l0)).detach()
    assert low < float(passing.min()) < 1 < float(passing.max()) < high
    assert high < 1.5 * float(passing.max())
    found, unit = made.memory_certificate(), made.recurrence.memory_certificate()
    assert found.remembers_at_least == pytest.approx(unit.remembers_at_least / high, rel=1e-6)
    assert found.levels[0].slowest == pytest.approx(unit.levels[0].slowest * low, rel=1e-6)
    rates = [layer.certificate("discrete").rate for layer in (made, made.recurrence)]
    assert rates[0] == pytest.approx(rates[1] * low)


@pytest.mark.parametrize("kind", ["damped", "clock"])
def test_irregular_spans_have_a_window_too(kind):
    made = blocks(kind, 0)
    window = made.memory_certificate(spans=(0.5, 2.0)).window(1e-3)
    assert window.seconds == 2 * window.steps
    spans = 0.5 + 1.5 * torch.rand(4, 50 + window.steps, dtype=F64)
    x = torch.randn(4, 50 + window.steps, 2, dtype=F64)
    whole = made(x, timespans=spans)[0][:, -1]
    cut = made(x[:, 50:], timespans=spans[:, 50:])[0][:, -1]
    assert float((whole - cut).detach().norm(dim=-1).max()) <= 1e-3


def test_a_classifier_of_blocks_has_a_window_in_probability():
    torch.manual_seed(0)
    model = SequenceClassifier(blocks("damped", 2), 3).double()
    window = answer_window(model, 0.01)
    x = 3 * torch.randn(200, 60 + window.steps, 2, dtype=F64)
    with torch.no_grad():
        moved = model(x).softmax(-1) - model(x[:, 60:]).softmax(-1)
    assert float(moved.abs().max()) <= 0.01


def test_of_two_directions_the_slower_one_is_in_the_curve():
    made = Stack(2, 4, bidirectional=True, dtype=F64)
    with torch.no_grad():
        for inner in (made.recurrence, made.recurrence_reverse):
            inner.drop_starts()
        made.recurrence.weight("weight_hh", 0, False)[:4].fill_(0.0)
        made.recurrence_reverse.weight("weight_hh", 0, False)[:4].fill_(-3.0)
    found = made.memory_certificate()
    x = torch.zeros(10, 1, 2, dtype=F64)
    ones, zeros = torch.ones(2, 1, 4, dtype=F64), torch.zeros(2, 1, 4, dtype=F64)
    ones[0] = 0  # the difference is in the second direction
    ends = [made(x, (start, zeros))[1] for start in (ones, zeros)]
    left = torch.hypot(*(one - other for one, other in zip(*ends, strict=True)))[1].norm().detach() / 8**0.5
    low, high = found.curves([10])
    assert low[0] <= float(left) <= high[0]
    assert found.forgets_at_most == pytest.approx(np.log(2) * np.exp(3.0), rel=1e-6)


class Fading(DampedOscillators):
    def run(self, *args, **options):
        output, state = super().run(*args, **options)
        return output, tuple(0.5 * part for part in state)


def test_a_changed_recurrence_inside_is_not_certified():
    made = Stack(2, 4, layer=Fading)
    assert "Fading changes run" in made.memory_certificate().reason
    assert "Fading changes run" in made.certificate("discrete").reason
