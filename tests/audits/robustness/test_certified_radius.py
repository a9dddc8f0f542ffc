# ruff: noqa: N803, N806 (X is the name of the contract)

import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from sostenuto.audits import certified_radius
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import LSTM, RNN, CoRNN, IndRNN, LipschitzRNN, UnICORNN
from tests.laws.audit_laws import AuditLaws

STEPS = 9


class TestCertifiedRadius(AuditLaws):
    def ask(self, model, X, y, **options):
        return certified_radius(model, X, y, **options)


def random_model(seed):
    """A random classifier on a layer that is often certified, one or two layers deep, last or mean read-out."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    depth, size = int(rng.integers(1, 3)), int(rng.integers(2, 5))
    options = {"num_layers": depth, "batch_first": True}
    kind = seed % 4
    if kind == 0:
        integrator, step_size = str(rng.choice(["euler", "imex"])), float(rng.uniform(0.05, 0.4))
        layer = LipschitzRNN(
            2, size, gamma=(float(rng.uniform(1, 4)), 0.0), step_size=step_size, integrator=integrator, **options
        )
    elif kind == 1:
        layer = RNN(2, size, nonlinearity=str(rng.choice(["tanh", "relu"])), **options)
    elif kind == 2:
        layer = IndRNN(
            2, size, activation=str(rng.choice(["relu", "tanh", "identity"])), batch_norm=depth == 1, **options
        )
    else:
        layer = CoRNN(
            2, size, step_size=0.1, gamma=float(rng.uniform(0.5, 2)), epsilon=float(rng.uniform(1, 3)), **options
        )
    model = SequenceClassifier(layer, int(rng.integers(2, 5)), readout="last" if rng.random() < 0.7 else "mean")
    with torch.no_grad():
        for name, parameter in model.layer.named_parameters():
            parameter *= float(rng.uniform(0.3, 0.9)) if "hh" in name else 1.0
            parameter += 0.2 * torch.randn_like(parameter) if "bias" in name else 0.0
    return model.double().eval()


def ascend(model, X, radii, seed, steps=10):
    """Push every sequence towards its most endangered class, within its radius; say which answers turn."""
    answer = model(X).argmax(-1)
    generator = torch.Generator().manual_seed(seed)
    move = torch.randn(X.shape, generator=generator, dtype=X.dtype)
    turned = torch.zeros(len(X), dtype=torch.bool)
    for step in range(steps):
        size = move.flatten(1).norm(dim=1).clamp_min(1e-300)
        move = (move * (radii / size)[:, None, None]).detach().requires_grad_()
        scores = model(X + move)
        turned |= scores.argmax(-1) != answer
        rivals = scores.scatter(1, answer[:, None], -torch.inf).max(-1).values
        gain = (rivals - scores.gather(1, answer[:, None])[:, 0]).sum()
        slope = torch.autograd.grad(gain, move)[0]
        slope = slope / slope.flatten(1).norm(dim=1).clamp_min(1e-300)[:, None, None]
        # The first half climbs in large steps, the second settles on the sphere.
        move = move.detach() + (1.0 if step < steps // 2 else 0.2) * radii[:, None, None] * slope
    return turned


def test_no_attack_inside_the_radius_turns_an_answer_and_outside_some_does():
    certified, outside = 0, 0
    for seed in range(8):
        model = random_model(seed)
        X = torch.randn(6, STEPS, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found = certified_radius(model, X, model(X).argmax(-1))
        if found.reason:
            continue
        certified += 1
        radii = torch.tensor(found.radii, dtype=torch.float64).clamp(max=1e6)
        assert sum(radius > 0 for radius in found.radii) >= 3, (seed, found.radii)
        assert not ascend(model, X, radii * (1 - 1e-6), seed).any(), (seed, type(model.layer).__name__)
        outside += int(ascend(model, X, radii * 30, seed, steps=4).sum())
    # Without the certificates extra the norm test alone certifies one model less.
    assert certified >= 6, certified
    # Radii that nothing outside could break would be no news.
    assert outside >= 8, outside


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_the_radius_of_a_linear_unit_is_exact_for_the_last_state_and_below_the_exact_one_for_the_mean(readout):
    w, v = 0.8, 1.5
    model = SequenceClassifier(IndRNN(1, 1, activation="identity", batch_first=True), 2, readout=readout).double()
    with torch.no_grad():
        model.layer.weight_hh_l0.fill_(w)
        model.layer.weight_ih_l0.fill_(v)
        model.head.weight.copy_(torch.tensor([[-1.0], [2.0]]))
    X = torch.randn(20, STEPS, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    lengths = torch.arange(20) % STEPS + 1
    scores = model(X, lengths)
    found = certified_radius(model, X, scores.argmax(-1), lengths=lengths)
    margin = (scores[:, 1] - scores[:, 0]).abs().detach().numpy()
    for index, count in enumerate(lengths.tolist()):
        response = v * w ** np.arange(count)
        if readout == "mean":
            response = np.cumsum(response) / count
        exact = margin[index] / (3 * np.linalg.norm(response))
        if readout == "last":
            assert found.radii[index] == pytest.approx(exact, rel=1e-6)
            assert found.radii[index] <= exact
        else:
            assert 0.3 * exact < found.radii[index] <= exact
    assert found.clean_accuracy == 1.0
    assert found.certified_accuracy(0.0) == 1.0
    assert found.certified_accuracy(max(found.radii)) == pytest.approx(1 / 20)


def test_scores_move_by_no_more_than_the_constant_and_pairs_gain_on_it():
    for seed in (0, 1, 4, 5, 8):
        model = random_model(seed)
        X = torch.randn(8, STEPS, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found = certified_radius(model, X, torch.zeros(8, dtype=torch.long))
        if found.reason:
            continue
        moved = X + 0.1 * torch.randn(X.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
        change = (model(moved) - model(X)).norm(dim=1) / (moved - X).flatten(1).norm(dim=1)
        assert float(change.detach().max()) <= found.lipschitz
        top = model(X).detach().topk(2).values
        plain = (top[:, 0] - top[:, 1]) / (math.sqrt(2) * found.lipschitz)
        assert (torch.tensor(found.radii, dtype=torch.float64) >= plain * (1 - 1e-6)).all()


def test_wrong_answers_are_not_certified_right():
    model = random_model(1)
    X = torch.randn(10, STEPS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    answer = model(X).argmax(-1)
    found = certified_radius(model, X, 1 - answer.clamp(max=1))
    assert found.reason == ""
    assert found.certified_accuracy(0.0) == found.clean_accuracy == sum(found.right) / 10
    assert found.certified_accuracy(1e9) == 0.0


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: SequenceClassifier(LSTM(2, 3, batch_first=True), 2), "the form .* fails (LSTM has another form)"),
        (
            lambda: SequenceClassifier(UnICORNN(2, 3, batch_first=True), 2),
            "the form .* fails (UnICORNN has another form)",
        ),
        (lambda: SequenceClassifier(RNN(2, 3, batch_first=True, bidirectional=True), 2), "one direction fails (two)"),
        (lambda: SequenceClassifier(RNN(2, 3, batch_first=True), 2, readout="max"), "a read-out .* fails (max)"),
        (lambda: SequenceClassifier(LipschitzRNN(2, 3, batch_first=True, gated=True), 2), "a linear part .*gate"),
        (
            lambda: SequenceClassifier(IndRNN(2, 3, num_layers=2, stacking="residual", batch_first=True), 2),
            "a plain stack fails (residual)",
        ),
    ],
)
def test_what_is_not_covered_is_said(make, reason):
    torch.manual_seed(0)
    found = certified_radius(make(), torch.randn(6, STEPS, 2), [0, 1, 0, 1, 0, 1])
    pattern = reason.replace("(", r"\(").replace(")", r"\)")
    assert found.reason.startswith("not applicable: ")
    assert re.search(pattern, found.reason), found.reason
    assert found.radii == ()
    assert found.lipschitz is None
    assert found.summary() == f"No radius is certified: {found.reason}."


def test_a_head_of_ones_own_is_not_a_linear_one():
    model = random_model(1)
    model.head = nn.Sequential(model.head, nn.Tanh())
    assert "another model" in certified_radius(model, torch.randn(4, STEPS, 2), [0, 1, 0, 1]).reason


class Louder(LipschitzRNN):
    def forward(self, input, state=None, **options):
        return super().forward(1000 * input, state, **options)


class Doubling(SequenceClassifier):
    def pooled(self, *values):
        return 2 * super().pooled(*values)


def certifiable(layer=LipschitzRNN, model=SequenceClassifier):
    torch.manual_seed(0)
    return model(layer(2, 3, gamma=(9.0, 0.0), step_size=0.1, batch_first=True), 2)


def patched():
    model = certifiable()
    forward = model.layer.forward
    model.layer.forward = lambda x, *values, **options: forward(1000 * x, *values, **options)
    return model


def hooked(name):
    model = certifiable()
    part = model.get_submodule(name)
    part.register_forward_pre_hook(lambda _, values: (1000 * values[0],))
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: certifiable(Louder), "Louder changes forward"),
        (lambda: certifiable(model=Doubling), "Doubling changes pooled"),
        (patched, "LipschitzRNN changes forward"),
        (lambda: hooked("layer"), "LipschitzRNN has a hook"),
        (lambda: hooked("head"), "Linear has a hook"),
        (lambda: hooked(""), "SequenceClassifier has a hook"),
    ],
)
def test_a_model_that_is_not_what_the_proof_assumes_gets_no_radius(make, reason):
    X, y = torch.randn(4, STEPS, 2), [0, 1, 0, 1]
    assert certified_radius(certifiable(), X, y).radii
    found = certified_radius(make(), X, y)
    assert found.radii == ()
    assert reason in found.reason
