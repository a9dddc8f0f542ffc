# ruff: noqa: N803, N806 (X is the name of the contract)
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import sostenuto as so
from sostenuto.audits.robustness.adversarial import adversarial_accuracy
from sostenuto.audits.robustness.attacks import project, random_start, size, steepest
from sostenuto.checks import InputError
from tests.laws.audit_laws import Answering, AuditLaws


class Linear(nn.Module):
    """Scores ±(w·x) over all steps: the distance to the boundary is known in every norm."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x, lengths=None):
        lead = (x * self.weight).sum((1, 2))[:, None]
        return torch.cat([-lead, lead], dim=1)


class Recurrent(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.layer, self.head = nn.GRU(2, 12, batch_first=True), nn.Linear(12, classes)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class GradientLaws(AuditLaws):
    # An attack needs gradients of the input; that those of the weights are left alone is another law's.
    test_the_model_is_asked_in_evaluation_mode_without_gradients = None
    test_random_numbers_are_left_as_they_were = None
    test_a_model_that_draws_repeats_too = None


class TestPGD(GradientLaws):
    def ask(self, model, X, y, **options):
        return adversarial_accuracy(model, X, y, epsilons=(0.1, 1.0), steps=3, **options)


class TestDeepFool(GradientLaws):
    def ask(self, model, X, y, **options):
        return adversarial_accuracy(model, X, y, attack="deepfool", epsilons=(0.1, 1.0), steps=3, **options)


@pytest.mark.parametrize(("norm", "dual"), [("linf", 1), ("l2", 2)])
@pytest.mark.parametrize("attack", ["pgd", "deepfool"])
def test_distances_of_a_linear_model(attack, norm, dual):
    """|w·x| / ‖w‖ in the dual norm is the distance: just below it nothing turns, just above everything does."""
    torch.manual_seed(0)
    weight = torch.randn(5, 2, dtype=torch.float64)
    X = torch.randn(20, 5, 2, dtype=torch.float64)
    lead = (X * weight).sum((1, 2))
    X = X * (0.7 * weight.flatten().norm(dual) / lead.abs())[:, None, None]
    y = (lead > 0).long()
    found = adversarial_accuracy(
        Linear(weight), X, y, attack=attack, norm=norm, epsilons=(0.69, 0.72), steps=100, overshoot=1e-3
    )
    assert found.clean_score == 1.0
    assert found.score == (1.0, 0.0)
    if attack == "deepfool":
        assert found.median_size == pytest.approx(0.7, rel=0.01)


def test_padding_is_never_touched():
    seen = []

    class Watching(Linear):
        def forward(self, x, lengths=None):
            seen.append(x.detach().clone())
            return super().forward(x)

    X = torch.zeros(2, 4, 1)
    X[1, 2:] = 9.0
    X[:, 0] = 0.1
    model = Watching(torch.ones(4, 1))
    adversarial_accuracy(model, X, [1, 1], lengths=[4, 2], epsilons=(0.5,), steps=2)
    adversarial_accuracy(model, X, [1, 1], lengths=[4, 2], epsilons=(0.5,), steps=2, attack="deepfool")
    assert all((values[1, 2:] == 9.0).all() for values in seen if len(values) == 2)
    assert any((values[1, :2] != X[1, :2]).any() for values in seen if len(values) == 2)


def test_unbounded_values_are_not_clamped_and_bounds_are_kept():
    seen = []

    class Watching(Linear):
        def forward(self, x, lengths=None):
            seen.append(x.detach().clone())
            return super().forward(x)

    X = torch.full((4, 3, 1), 100.0)
    model = Watching(torch.ones(3, 1))
    free = adversarial_accuracy(model, X, [1] * 4, epsilons=(150.0,), steps=5)
    assert free.score == (0.0,)
    seen.clear()
    held = adversarial_accuracy(model, X, [1] * 4, epsilons=(150.0,), steps=5, bounds=(50.0, 120.0))
    assert held.score == (1.0,)
    assert min(float(values.min()) for values in seen) >= 50.0


def test_a_class_at_every_step():
    class Steps(nn.Module):
        def forward(self, x):
            return torch.cat([-x, x], dim=-1)

    X = torch.linspace(0.1, 1.0, 10)[:, None, None].repeat(1, 2, 1)
    found = adversarial_accuracy(Steps(), X, torch.ones(10, 2, dtype=torch.long), epsilons=(0.55,))
    assert found.count == 20
    assert found.score == (0.5,)
    with pytest.raises(InputError, match="expected one class per sequence for DeepFool"):
        adversarial_accuracy(Steps(), X, torch.ones(10, 2, dtype=torch.long), attack="deepfool")


@pytest.mark.parametrize("norm", ["linf", "l2", "step-l2"])
def test_projection_and_starts_stay_in_the_ball(norm):
    generator = torch.Generator().manual_seed(0)
    like = torch.zeros(1, dtype=torch.float64)
    start = random_start(torch.Size((6, 5, 3)), norm, 0.3, generator, like)
    assert (size(start, norm) <= 0.3 + 1e-12).all()
    assert (size(project(100 * start, norm, 0.3), norm) <= 0.3 + 1e-12).all()
    small = start * 1e-3
    torch.testing.assert_close(project(small, norm, 0.3), small)
    torch.testing.assert_close(size(steepest(start, norm), norm), torch.ones(6, dtype=torch.float64))


@pytest.fixture(scope="module")
def trained():
    """Train a small GRU on three kinds of waves in [0, 1], so that a bounded attack has something to find."""
    torch.manual_seed(0)
    time = torch.arange(16) / 16
    y = torch.arange(150) % 3
    phase = torch.rand(150, 1)
    waves = torch.sin(2 * torch.pi * ((y[:, None] + 1) * time + phase))
    X = torch.stack([waves, waves.roll(3, 1)], -1) * 0.35 + 0.5 + 0.05 * torch.randn(150, 16, 2)
    X = X.clamp(0, 1)
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), y).backward()
        optimizer.step()
    return model.eval(), X, y


@pytest.mark.parametrize(("attack", "norm"), [("pgd", "linf"), ("pgd", "l2"), ("deepfool", "linf"), ("deepfool", "l2")])
def test_agrees_with_foolbox_on_bounded_input(trained, attack, norm):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        foolbox = pytest.importorskip("foolbox")
    model, X, y = trained
    epsilons = (0.02, 0.05, 0.1) if norm == "linf" else (0.1, 0.25, 0.5)
    names = {
        ("pgd", "linf"): lambda: foolbox.attacks.LinfPGD(rel_stepsize=2.5 / 40, steps=40),
        ("pgd", "l2"): lambda: foolbox.attacks.L2PGD(rel_stepsize=2.5 / 40, steps=40),
        ("deepfool", "linf"): foolbox.attacks.LinfDeepFoolAttack,
        ("deepfool", "l2"): foolbox.attacks.L2DeepFoolAttack,
    }
    wrapped, options = foolbox.PyTorchModel(model, bounds=(0, 1)), {"steps": 40 if attack == "pgd" else 50}
    theirs, ours = [], []
    for seed in range(4 if attack == "pgd" else 1):  # random starts move single runs by two points, theirs and ours
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            _, _, success = names[attack, norm]()(wrapped, X, y, epsilons=list(epsilons))
        theirs.append(1 - success.double().mean(1).numpy())
        found = adversarial_accuracy(
            model, X, y, attack=attack, norm=norm, epsilons=epsilons, bounds=(0, 1), seed=seed, **options
        )
        assert found.clean_score > 0.9
        ours.append(found.score)
    assert 0.05 < np.mean(theirs, axis=0)[-1] < 0.95
    np.testing.assert_allclose(np.mean(ours, axis=0), np.mean(theirs, axis=0), atol=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attack": "fgsm"}, "expected attack to be one of 'pgd', 'deepfool', .* got 'fgsm'"),
        ({"norm": "l1"}, "expected norm to be one of 'linf', 'l2', 'step-l2', got 'l1'"),
        ({"attack": "deepfool", "norm": "step-l2"}, "expected norm to be one of 'linf', 'l2', got 'step-l2'"),
        ({"epsilons": ()}, "expected at least one epsilon, got none"),
        ({"epsilons": (-1.0,)}, "expected epsilon to be a finite number at least 0"),
        ({"steps": 0}, "expected steps to be a whole number of at least 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        adversarial_accuracy(Linear(torch.ones(2, 1)), torch.ones(3, 2, 1), [1, 1, 0], **options)


def test_an_audit_attacks_more_sequences_where_they_take_little_time():
    X = 2 * torch.rand(600, 4, 1, generator=torch.Generator().manual_seed(0)) - 1
    X = X + 0.04 * X.sign()
    model = Answering(lambda x: torch.cat([-x[:, -1], x[:, -1]], 1))
    report = so.audit(model, X, (X[:, -1, 0] > 0).long(), checks="attack", progress=False)
    assert report.attack.count == 600
    assert report.verdicts["attack"].label == "Steady"  # 2 % is lost, which 128 sequences could not tell from 5 %
