# ruff: noqa: N803, N806 (X is the name of the contract)
import numpy as np
import pytest
import torch

from sostenuto.audits import certified_accuracy, certified_radius
from sostenuto.audits.checks import all_checks, all_thresholds
from sostenuto.audits.robustness.certified_accuracy import UNTURNED
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import RNN, IndRNN, UnICORNN
from tests.laws.audit_laws import AuditLaws

STEPS = 7


def random_model(seed):
    """A classifier on a layer that contracts, one or two layers deep, last or mean read-out."""
    generator = np.random.default_rng(seed)
    torch.manual_seed(seed)
    options = {"num_layers": int(generator.integers(1, 3)), "batch_first": True}
    size = int(generator.integers(2, 5))
    if seed % 2:
        layer = RNN(2, size, nonlinearity=str(generator.choice(["tanh", "relu"])), **options)
    else:
        layer = IndRNN(2, size, activation=str(generator.choice(["relu", "tanh", "identity"])), **options)
    model = SequenceClassifier(layer, int(generator.integers(2, 5)), readout="last" if seed % 3 else "mean")
    with torch.no_grad():
        for name, parameter in model.layer.named_parameters():
            parameter *= float(generator.uniform(0.3, 0.7)) if "hh" in name else 1.0
    return model.eval()


def asked(seed, count=10):
    model = random_model(seed)
    X = torch.randn(count, STEPS, 2, generator=torch.Generator().manual_seed(seed))
    return model, X, certified_accuracy(model, X, torch.arange(count) % 2, steps=15)


def test_no_attack_succeeds_within_a_certified_radius():
    """The law: certified radius ≤ distance of the attack, for every sequence of every model."""
    certified = turned = 0
    for seed in range(16):
        _, _, found = asked(seed)
        if found.reason:
            continue
        certified += 1
        assert len(found.radii) == len(found.distances) == 10
        for radius, distance in zip(found.radii, found.distances, strict=True):
            assert radius <= distance * (1 + 1e-6) + 1e-12, (seed, radius, distance)
            turned += distance < UNTURNED
        assert not found.contradicted
        for place in np.geomspace(1e-4, 10, 12):
            assert found.certified(place) <= found.attacked(place)
    assert certified >= 12
    # An attack that never succeeded would prove nothing.
    assert turned >= 70


def test_a_change_of_that_distance_turns_the_answer_and_the_radius_is_the_proofs():
    model, X, found = asked(1)
    assert found.radii == certified_radius(model, X, torch.arange(10) % 2).radii
    assert found.clean_accuracy == pytest.approx(float((model(X).argmax(-1) == torch.arange(10) % 2).float().mean()))
    assert found.certified(0.0) == found.clean_accuracy


def test_a_contradiction_is_told():
    _, _, found = asked(1)
    broken = type(found).from_dict(found.to_dict() | {"distances": [radius / 2 for radius in found.radii]})
    assert broken.contradicted
    assert "An attack contradicts the proof" in broken.summary()
    assert all_checks()["certified"].judge(broken, all_thresholds()["certified"]).outcome == "bad"
    assert all_checks()["certified"].judge(found, all_thresholds()["certified"]).outcome in ("good", "unknown")


def test_a_layer_without_a_certificate_says_why():
    model = SequenceClassifier(UnICORNN(2, 3, batch_first=True), 2)
    found = certified_accuracy(model, torch.zeros(3, STEPS, 2), [0, 1, 0])
    assert found.reason.startswith("not applicable: the form")
    assert found.radii == found.distances == ()


class TestCertifiedAccuracy(AuditLaws):
    def ask(self, model, X, y, **options):
        return certified_accuracy(model, X, y, **options)
