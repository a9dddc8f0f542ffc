"""This audit reads weights alone, so the laws about data do not fit; those about the record are repeated here."""

import dataclasses
import json
import re

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from sostenuto.audits import AuditResult, oscillator_saddles
from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import UnICORNN


@pytest.fixture
def layer():
    layer = UnICORNN(2, 5, num_layers=2, stiffness=1.0, step_size=0.2, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.tensor([-3.0, -1.0, 0.0, 2.0, -1.5]))
        layer.weight_hh_l1.fill_(0.5)
        layer.time_scale_l0.zero_()
    return layer


def test_units_below_the_condition_are_named(layer):
    result = oscillator_saddles(layer)
    first, second = result.layers
    assert first.saddles == (0, 4)
    assert first.condition == "not applicable: w ≥ −α fails (−3 to −1.5), for 2 of 5 units"
    assert first.margin == -2
    assert first.saddle_growth[0] == pytest.approx(torch.asinh(torch.tensor(0.1 * 2**0.5 / 2)).item() * 2)
    assert (second.saddles, second.condition, second.saddle_growth) == ((), "", ())
    assert not result.holds


def test_growth_at_rest_is_the_eigenvalue_of_the_jacobian(layer):
    h, q = 0.1, -2.0
    jacobian = torch.tensor([[1 - h * h * q, h], [-h * q, 1]], dtype=torch.float64)
    largest = torch.linalg.eigvals(jacobian).abs().max().log().item()
    assert oscillator_saddles(layer).layers[0].saddle_growth[0] == pytest.approx(largest, rel=1e-12)


def test_the_condition_is_said_not_to_be_enough(layer):
    result = oscillator_saddles(layer)
    assert result.layers[0].resonant == 1
    assert result.layers[1].resonant == 5
    assert result.layers[1].resonance_growth > 0
    assert "does not bound gradients" in result.summary()
    assert "a saddle at rest (w < −α" in result.summary()


def test_a_free_unit_neither_falls_nor_resonates():
    layer = UnICORNN(1, 3)
    nn.init.zeros_(layer.weight_hh_l0)
    found = oscillator_saddles(layer).layers[0]
    assert (found.saddles, found.resonant, found.resonance_growth) == ((), 0, 0.0)


def test_the_option_keeps_the_condition():
    layer = UnICORNN(1, 8, stiffness=0.5, positive=True)
    with torch.no_grad():
        layer.parametrizations.weight_hh_l0.original.fill_(-50.0)
    assert oscillator_saddles(layer).holds


def test_the_result_is_a_record(layer):
    result = oscillator_saddles(SequenceClassifier(UnICORNN(2, 5, batch_first=True, bidirectional=True), 2))
    assert isinstance(result, AuditResult)
    assert result.model == "SequenceClassifier"
    assert [found.name for found in result.layers] == ["layer 1", "layer 1, backward"]
    plain = json.loads(result.to_json())
    assert type(result).from_dict(plain) == result
    assert re.fullmatch(r"[A-Z].{20,}\.", result.summary())
    assert re.fullmatch(r"[A-Z].{20,}\.", result.method)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.layers = ()
    before = oscillator_saddles(layer).checksum
    nn.init.ones_(layer.weight_hh_l1)
    assert oscillator_saddles(layer).checksum != before


def test_the_plot_needs_only_axes(layer):
    ax = Figure().add_subplot()
    assert oscillator_saddles(layer).plot(ax) is None
    assert ax.has_data()
    assert ax.get_xlabel()
    assert ax.get_ylabel()


def test_a_model_without_oscillators_is_refused():
    with pytest.raises(InputError, match="expected a model with one UnICORNN, got 0 in Linear"):
        oscillator_saddles(nn.Linear(1, 1))
