# ruff: noqa: N803, N806 (X is the name of the contract)

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from sostenuto.audits import oscillator_state_bound
from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import UnICORNN
from tests.laws.audit_laws import AuditLaws
from tests.laws.oscillating import with_oscillators


class TestOscillatorStates(AuditLaws):
    def ask(self, model, X, y, **options):
        with with_oscillators(model):
            return oscillator_state_bound(model, X, **options)


def wild(layer, seed=0):
    """Draw weights of every sign and size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return layer


@pytest.mark.parametrize("options", [{}, {"num_layers": 3, "skip": 2}, {"bidirectional": True, "num_layers": 2}])
@pytest.mark.parametrize("ragged", [False, True])
def test_states_are_the_layers_own(options, ragged):
    layer = wild(UnICORNN(2, 5, batch_first=True, step_size=0.4, stiffness=1.5, dtype=torch.float64, **options))
    lengths = [40, 40, 40] if not ragged else [40, 13, 1]
    X = [torch.randn(length, 2, dtype=torch.float64) for length in lengths]
    result = oscillator_state_bound(layer, X)
    reach = torch.zeros(len(result.layers))
    for x in X:
        output, _ = layer(x)
        top = output.abs().amax(0).unflatten(0, (layer.num_directions, 5)).amax(1)
        reach[-layer.num_directions :] = torch.maximum(reach[-layer.num_directions :], top)
    for found, want in zip(result.layers[-layer.num_directions :], reach[-layer.num_directions :], strict=True):
        assert found.reach == pytest.approx(want.item(), rel=1e-6)
        assert max(found.position) == pytest.approx(want.item(), rel=1e-6)
    assert [found.name for found in result.layers][:2] in (
        ["layer 1"],
        ["layer 1", "layer 2"],
        ["layer 1", "layer 1, backward"],
    )


@pytest.mark.parametrize("stiffness", [0.0, 1.0, 15.9])
@pytest.mark.parametrize("spans", [None, 0.7])
def test_bounds_hold_and_are_the_formulas(stiffness, spans):
    layer = wild(UnICORNN(1, 50, step_size=0.5, stiffness=stiffness, num_layers=2))
    X = 5 * torch.randn(6, 80, 1)
    timespans = None if spans is None else np.full((6, 80), spans)
    result = oscillator_state_bound(layer, X, timespans=timespans, batch_size=4)
    assert result.count == 6
    for level, found in enumerate(result.layers):
        assert (found.condition, found.covered, found.units) == ("", 50, 50)
        assert 0 < found.position_share <= 1
        assert 0 < found.velocity_share <= 1
        assert all(a <= b for a, b in zip(found.position, found.position_bound, strict=True))
        assert all(a <= b for a, b in zip(found.velocity, found.velocity_bound, strict=True))
        step = layer.effective_step(level).double() * (spans or 1)
        want = (80 * step / (1 - step**2 * stiffness / 4).sqrt()).max().item()
        assert found.velocity_bound[-1] == pytest.approx(want, rel=1e-6)


def test_the_bound_is_reached_by_a_constant_push_without_stiffness():
    layer = UnICORNN(1, 1, stiffness=0.0, dtype=torch.float64)
    nn.init.zeros_(layer.weight_hh_l0)
    nn.init.ones_(layer.weight_ih_l0)
    result = oscillator_state_bound(layer, np.full((1, 30, 1), 50.0)).layers[0]
    assert result.position_share == pytest.approx(1, rel=1e-12)
    assert result.velocity_share == pytest.approx(1, rel=1e-12)


def test_time_spans_that_differ_are_covered_without_stiffness_alone():
    spans = np.random.default_rng(0).uniform(0.1, 3, (4, 60))
    X = 9 * torch.randn(4, 60, 1)
    free = oscillator_state_bound(wild(UnICORNN(1, 20, stiffness=0.0, step_size=0.5)), X, timespans=spans).layers[0]
    assert free.condition == ""
    assert 0 < free.position_share <= 1
    assert 0 < free.velocity_share <= 1
    bound = oscillator_state_bound(UnICORNN(1, 20), X, timespans=spans)
    assert bound.layers[0].condition.startswith("not applicable: one time span within each sequence fails (0.1")
    assert bound.layers[0].position_bound == ()
    assert "not applicable" in bound.summary()


def test_steps_beyond_the_limit_are_named():
    with pytest.warns(UserWarning, match="stability limit"):
        layer = UnICORNN(1, 4, step_size=1.0, stiffness=30.0)
    with torch.no_grad():
        layer.time_scale_l0.copy_(torch.tensor([-3.0, -2.0, -1.0, 3.0]))
    result = oscillator_state_bound(layer, torch.randn(2, 30, 1))
    assert result.layers[0].condition == "not applicable: h√α < 2 fails (5.217), for 1 of 4 units"
    assert result.layers[0].covered == 3
    assert result.layers[0].position_share <= 1
    nn.init.constant_(layer.time_scale_l0, 30.0)
    lost = oscillator_state_bound(layer, torch.randn(2, 400, 1))
    assert lost.layers[0].condition == "not applicable: h√α < 2 fails (5.477)"
    assert lost.layers[0].reach is None
    assert "left the range of float64" in lost.summary()
    assert type(lost).from_dict(lost.to_dict()) == lost
    ax = Figure().add_subplot()
    lost.plot(ax)
    assert ax.texts


def test_a_layer_above_a_lost_one_is_not_measured():
    with pytest.warns(UserWarning, match="stability limit"):
        layer = UnICORNN(1, 3, num_layers=2, step_size=[9.0, 0.1], stiffness=1.0)
    result = oscillator_state_bound(layer, torch.randn(1, 400, 1))
    assert result.layers[1].condition == "not measured: a layer below leaves the range of float64"
    assert result.layers[1].position == ()


def test_a_start_away_from_zero_is_refused():
    class Moved(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = UnICORNN(1, 3, batch_first=True)

        def forward(self, x):
            start = torch.full((1, len(x), 3), 2.0)
            return self.rnn(x, (start, start))[0]

    result = oscillator_state_bound(Moved(), torch.randn(2, 5, 1))
    assert result.layers[0].condition == "not applicable: a zero start fails (largest entry 2)"


def test_a_model_is_audited_as_its_layer():
    model = SequenceClassifier(UnICORNN(2, 4, num_layers=2, batch_first=True, dropout=0.5), num_classes=3)
    X = [torch.randn(length, 2) for length in (9, 4, 7)]
    inside, bare = oscillator_state_bound(model, X), oscillator_state_bound(model.layer, X)
    assert inside.layers == bare.layers
    assert (inside.model, bare.model) == ("SequenceClassifier", "UnICORNN")
    padded = torch.nn.utils.rnn.pad_sequence(X, batch_first=True)
    assert oscillator_state_bound(model, padded, lengths=[9, 4, 7]) == inside


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Linear(1, 1), {}, "expected a model with one UnICORNN, got 0 in Linear; pass the UnICORNN itself"),
        (nn.ModuleList([UnICORNN(1, 2), UnICORNN(1, 2)]), {}, "got 2 in ModuleList"),
        (SequenceClassifier(UnICORNN(1, 2, batch_first=True), 2), {"timespans": [[1.0] * 5]}, "with a bare UnICORNN"),
        (UnICORNN(3, 2), {}, r"expected 3 channels \(input_size\), got 1"),
        (UnICORNN(1, 2), {"lengths": [3, 4]}, "expected 1 lengths, got 2"),
    ],
)
def test_what_cannot_be_audited_is_refused(model, options, message):
    with pytest.raises(InputError, match=message):
        oscillator_state_bound(model, torch.zeros(1, 5, 1), **options)


def test_a_layer_asked_twice_is_refused():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = UnICORNN(1, 1, batch_first=True)

        def forward(self, x):
            return self.rnn(self.rnn(x)[0])[0]

    with pytest.raises(InputError, match="expected the model to call its UnICORNN once, got 2 calls"):
        oscillator_state_bound(Twice(), torch.zeros(1, 5, 1))
