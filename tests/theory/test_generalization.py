import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sostenuto.benchmarks._random_models import random_group, random_path, random_readout
from sostenuto.checks import InputError
from sostenuto.data.batch import SequenceBatch
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor, SequenceToSequence
from sostenuto.nn import ResidualGRU, ResidualRNN
from sostenuto.theory.generalization import embedding_bound, generalization_bound
from sostenuto.theory.jackson import jackson_bound
from sostenuto.theory.risk_bounds import binary_bound, multiclass_bound, sequence_bound, stratified
from sostenuto.theory.rkhs import rkhs_norm
from sostenuto.theory.signature import signature
from sostenuto.theory.stability import prediction_stability, signature_distance_bound
from sostenuto.theory.taylor import taylor


def small_layer(seed: int = 0, size: float = 0.05, **options) -> ResidualRNN:
    torch.manual_seed(seed)
    layer = ResidualRNN(2, 6, batch_first=True, **options).double()
    with torch.no_grad():
        layer.weight_hh_l0 *= size
        layer.weight_ih_l0 *= size
        layer.bias_ih_l0.zero_()
    return layer


def data(count: int = 500, steps: int = 200, seed: int = 0, classes: int = 2) -> SequenceBatch:
    """Lines in random directions; the class is the sector they point to."""
    generator = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    time = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[1:]
    end = 0.5 * torch.stack([angle.cos(), angle.sin()], dim=-1)
    targets = (angle / (2 * math.pi) * classes).long().clamp(max=classes - 1)
    return SequenceBatch(time[None, :, None] * end[:, None], torch.full((count,), steps), targets)


def test_classifier_bound_is_the_sum_of_its_terms():
    model = SequenceClassifier(small_layer(), 2).double()
    bound = generalization_bound(model, data())
    assert bound.applicable, bound.reason
    parts = [bound.terms[name] for name in ("empirical_risk", "discretization", "complexity", "confidence")]
    assert bound.value == pytest.approx(sum(parts))
    assert min(parts) > 0
    assert bound.terms["delta"] < 0.05
    difference = model.head.weight[1] - model.head.weight[0]
    assert rkhs_norm(model.layer, 4, readout=difference).value <= bound.terms["norm"]
    larger = generalization_bound(model, data(2000))
    assert larger.terms["complexity"] == pytest.approx(bound.terms["complexity"] / 2)


def test_error_on_new_sequences_is_below_the_bound():
    """Fresh data: the error rate, and the loss itself, of a trained read-out."""
    model = SequenceClassifier(small_layer(size=0.02), 2).double()
    for delta in (0.05, 0.5):
        bound = generalization_bound(model, data(20000, steps=20), delta)
        fresh = data(20000, steps=20, seed=1)
        wrong = (model(fresh.values).argmax(-1) != fresh.targets).double().mean()
        assert wrong <= bound.value
        loss = nn.functional.cross_entropy(model(fresh.values), fresh.targets) / math.log(2)
        assert loss <= bound.value


def test_more_classes_and_mean_read_out():
    model = SequenceClassifier(small_layer(), 4, readout="mean").double()
    bound = generalization_bound(model, data(classes=4))
    assert bound.applicable, bound.reason
    assert bound.quantity == "probability of an error"
    joint = rkhs_norm(model.layer, 4, readout=model.head).squared.sum().sqrt()
    assert joint <= bound.terms["norm"]


@pytest.mark.parametrize("ragged", [False, True])
def test_numbers_and_sequences(ragged):
    sequences = data(50)
    if ragged:
        sequences = replace(sequences, lengths=torch.arange(151, 201))
    steps = replace(sequences, targets=sequences.values[..., :1], has_step_targets=True)
    model = SequenceToSequence(small_layer(), 1).double()
    bound = generalization_bound(model, steps, target_bound=1.0)
    assert bound.applicable, bound.reason
    assert bound.quantity == "expected squared distance"
    single = replace(sequences, targets=sequences.values[:, -1])
    regressor = SequenceRegressor(small_layer(), 2).double()
    assert generalization_bound(regressor, single, target_bound=1.0).applicable
    assert "‖y‖ ≤ 0.1 fails (0.5" in generalization_bound(regressor, single, target_bound=0.1).reason
    with pytest.raises(InputError, match="expected target_bound"):
        generalization_bound(regressor, single)


def test_failing_assumptions_are_told_with_their_values():
    plain = data()
    long = replace(plain, values=4 * plain.values)
    model = SequenceClassifier(small_layer(), 2).double()
    bound = generalization_bound(model, long)
    assert math.isnan(bound.value)
    assert bound.reason == "not applicable: total variation ≤ 0.5 of every sequence fails (2)"
    heavy = SequenceClassifier(small_layer(size=10.0), 2).double()
    assert "2ρ·max_r √(s²‖U_r‖₁² + ‖V_r‖₂²) ≤ 1 fails" in generalization_bound(heavy, plain).reason
    largest = SequenceClassifier(small_layer(), 2, readout="max").double()
    assert "linear in the states" in generalization_bound(largest, plain).reason
    gated = SequenceClassifier(ResidualGRU(2, 3, batch_first=True), 2)
    assert "f(h, x) = σ(U h + V x + b) fails" in generalization_bound(gated, plain).reason


def test_network_is_near_its_function_in_the_rkhs():
    """Theorem 1: |z_T − ξ(X)| with ξ to an order beyond which the rest is below rounding."""
    layer, readout = small_layer(size=0.04), torch.randn(2, 6, dtype=torch.float64)
    sequences = data(20, steps=30)
    bound = embedding_bound(layer, 30, readout)
    assert bound.applicable
    with torch.no_grad():
        near = (layer(sequences.values)[0] - taylor(layer, sequences.values, 8, prefixes=True)) @ readout.mT
    assert near.norm(dim=-1).max() <= bound.value + 1e-9
    assert bound.value < 1


def test_predictions_of_random_models_move_less_than_the_bound():
    tightest, applicable = 0.0, 0
    for seed in range(20):
        group = random_group(seed, 15, largest=0.2)
        moved = 0.9 * group.paths + 0.1 * group.paths.flip(-1)
        for i, field in enumerate(group.fields):
            length = field.total_variation
            found = prediction_stability(
                field, random_readout(field, i), group.paths[i], moved[i] * 0.999, total_variation=length
            )
            if found.bound.applicable:
                applicable += 1
                assert found.measured <= found.bound.value
                tightest = max(tightest, found.measured / found.bound.value)
    assert applicable > 100
    assert tightest > 1e-4


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), length=st.floats(0.01, 0.8), mix=st.floats(0, 1), steps=st.integers(1, 6))
def test_signature_distances_keep_their_bound(seed, length, mix, steps):
    one, two = random_path(length, (2, steps, 2), torch.Generator().manual_seed(seed))
    two = (1 - mix) * one + mix * two
    bound = signature_distance_bound(one, two, total_variation=length, level=2)
    levels = [signature(path, 8, basepoint=True, total_variation=length).flat() for path in (one, two)]
    distance = (levels[0] - levels[1]).norm()
    assert not bound.applicable or distance <= bound.value * (1 + 1e-9) + 1e-13
    assert not bound.applicable or bound.value <= bound.terms["lengths"] * (1 + 1e-12)


def test_shares_of_delta_add_up_to_less_than_one():
    shares = {stratified(2 ** (j / 4 - 0.01), 1.0) for j in range(-300, 400)}
    assert 0.99 < sum(share for _, share in shares) <= 1
    for norm in (1e-3, 0.7, 3.0, 1e4):
        rounded, _ = stratified(norm, 0.1)
        assert norm <= rounded <= norm * 2**0.25 * (1 + 1e-12)


def test_theorems_shrink_with_the_sample():
    for bound in (
        lambda n: binary_bound(0.0, 2.0, n, 0.1),
        lambda n: multiclass_bound(0.0, 2.0, 3, n, 0.1),
        lambda n: sequence_bound(0.0, 2.0, 2, 1.0, n, 0.1),
    ):
        assert bound(400).value == pytest.approx(bound(100).value / 2)
    with pytest.raises(InputError, match="delta"):
        binary_bound(0.0, 1.0, 10, 0.0)


def best_exponentials(response: Tensor, rates: Tensor, time: Tensor) -> float:
    """Fit Σ w_j e^{−c_j t} to a kernel and give the integral of the absolute error: no less than the best."""
    basis = torch.exp(-rates * time[:, None])
    weights = torch.linalg.lstsq(basis, response[:, None], driver="gelsd").solution
    return float(torch.trapezoid((response - (basis @ weights)[:, 0]).abs(), time))


def test_the_unit_of_time_does_not_change_the_error():
    """Erratum wang2024.9: β a thousand times larger, γ and the error the same, so no C(α)γ/(βm^α) bounds it."""
    errors = []
    for beta in (1.0, 1000.0):
        time = torch.linspace(0, 40 / beta, 20001, dtype=torch.float64)
        kernel = beta * (beta * time) * torch.exp(-2 * beta * time)
        errors.append(best_exponentials(kernel, beta / 2 * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), time))
    assert errors[0] > 1e-3
    assert errors[1] == pytest.approx(errors[0], rel=1e-6)


@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("smoothness", [1, 2, 3])
def test_jackson_rate_holds_in_every_unit_of_time(beta, smoothness):
    """y′ = β(βt)e^{−2βt}: γ does not depend on β, nor does the error; eq. (20) of wang2024 claims 1/β."""
    time = torch.linspace(0, 40 / beta, 20001, dtype=torch.float64)
    kernel = beta * (beta * time) * torch.exp(-2 * beta * time)
    # y^(k)/β^k for k = 1, 2, … is (−2)^(k−1)·u·e^{−2u} + (k−1)(−2)^(k−2)·e^{−2u}, u = βt; sup over u of e^u times it.
    u = torch.linspace(0, 40, 200001, dtype=torch.float64)
    gamma = max(
        float(((u * (-2.0) ** (k - 1) + (k - 1) * (-2.0) ** (k - 2)) * torch.exp(-u)).abs().max())
        for k in range(1, smoothness + 2)
    )
    for width in (3, 6):
        bound = jackson_bound(width, smoothness=smoothness, decay=beta, size=gamma)
        rates = bound.terms["slowest_rate"] * torch.arange(1, width + 1, dtype=torch.float64)
        assert best_exponentials(kernel, rates, time) <= bound.value
    assert jackson_bound(2, smoothness=3, decay=beta, size=1.0).reason == "not applicable: width ≥ smoothness fails (2)"
