# ruff: noqa: N803, N806 (X is the name of the contract)

from dataclasses import replace

import pytest
import torch
from torch import nn

from sostenuto.audits import certified_stability
from sostenuto.benchmarks.certified_models import random_layer
from sostenuto.nn import LSTM, LipschitzRNN, UnICORNN
from sostenuto.report.numbers import number
from tests.laws.audit_laws import AuditLaws
from tests.laws.recurrent import with_recurrence


class TestCertifiedStability(AuditLaws):
    def ask(self, model, X, y, **options):
        with with_recurrence(model):
            return certified_stability(model, X, points=8, **options)


def test_certificates_never_contradict_measurement():
    """The 1000 models asked for are in results/certified_models.json."""
    held = dict.fromkeys(("contraction", "lure", "discrete"), 0)
    for seed in range(40):
        layer = random_layer(seed)
        X = 2 * torch.randn(2, 8, layer.input_size, generator=torch.Generator().manual_seed(seed))
        found = certified_stability(layer, X, points=12)
        assert not found.contradicted, (seed, type(layer).__name__, found.summary())
        for one in found.judged:
            held[one.certificate.kind] += one.certificate.holds
    assert min(held.values()) >= 5, held


def test_a_false_certificate_would_be_seen():
    torch.manual_seed(0)
    layer = nn.RNN(1, 3)
    with torch.no_grad():
        layer.weight_hh_l0.mul_(0.3)
    found = certified_stability(layer, torch.randn(2, 10, 1))
    assert found.certified
    judged = found.judged[0]
    assert judged.measured >= judged.certificate.rate
    false = replace(judged, certificate=replace(judged.certificate, rate=judged.measured + 0.1))
    assert false.contradicted
    assert "contradicted" in replace(found, judged=(false,)).summary()


def test_layers_of_a_stack_are_judged_one_by_one():
    pytest.importorskip("cvxpy", reason="the matrix inequality needs the certificates extra")
    torch.manual_seed(0)
    layer = LipschitzRNN(2, 3, num_layers=2, gamma=3.0, step_size=0.05, dtype=torch.float64)
    found = certified_stability(layer, torch.randn(2, 12, 2))
    assert [(one.layer, one.certificate.kind) for one in found.judged] == [
        (level, kind) for level in (0, 1) for kind in ("contraction", "lure", "discrete")
    ]
    assert all(one.measured is not None for one in found.judged)
    assert found.certified
    assert not found.contradicted


@pytest.mark.parametrize("model", [LSTM(1, 3), nn.LSTM(1, 3), nn.GRUCell(1, 3)])
def test_units_without_a_certificate_say_so(model):
    found = certified_stability(model, torch.randn(1, 5, 1))
    assert not found.certified
    assert found.summary().startswith("No certificate applies: ")
    assert "has another form" in found.summary()
    assert any(one.measured is not None for one in found.judged)


def test_a_reason_that_is_true_of_a_whole_stack_is_given_once():
    torch.manual_seed(0)
    layer = UnICORNN(2, 3, num_layers=3)
    found = certified_stability(layer, torch.randn(2, 6, 2))
    assert len(found.judged) == 9
    text = found.summary()
    assert text.startswith("Whatever it reads, at least half of its memory is left after ")
    assert "Slowest contraction measured at 12 steps" in text
    assert text.count("damping fails") == 1
    assert found.remembers
    assert not found.certified
    assert found.memory == UnICORNN.memory_certificate(layer.double())
    slowest = {
        kind: min(one.measured for one in found.judged if one.certificate.kind == kind) for kind in ("lure", "discrete")
    }
    assert f"{number(slowest['lure'])} per unit of time" in text
    assert f"{number(slowest['discrete'])} per step" in text


def test_numbers_stay_where_a_certificate_holds():
    pytest.importorskip("cvxpy", reason="the matrix inequality needs the certificates extra")
    torch.manual_seed(0)
    layer = LipschitzRNN(2, 3, num_layers=2, gamma=3.0, step_size=0.05, dtype=torch.float64)
    found = certified_stability(layer, torch.randn(2, 12, 2))
    text = found.summary()
    for one in found.judged:
        if one.certificate.holds:
            assert number(one.certificate.rate) in text
            assert number(one.measured) in text
    assert "The discrete-step certificate holds in every layer at rate " in text
    first = next(one for one in found.judged if not one.certificate.holds)
    assert "Not applicable: contraction in every layer: μ₂(A) + s‖B‖₂‖W‖₂ < 0 fails (" in text
    assert f"({first.certificate.reason.split('fails (')[1][:-1]}, " in text


def test_layers_that_differ_are_named():
    torch.manual_seed(0)
    layer = nn.RNN(1, 3, num_layers=3)
    with torch.no_grad():
        for level, scale in enumerate((0.3, 5.0, 0.3)):
            getattr(layer, f"weight_hh_l{level}").mul_(scale)
    text = certified_stability(layer, torch.randn(2, 10, 1)).summary()
    assert "holds in layers 1 and 3 at rate" in text
    assert "Not applicable: discrete-step in layer 2: " in text
