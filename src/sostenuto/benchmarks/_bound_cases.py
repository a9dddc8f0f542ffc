"""What each bound of fermanian2021 says of a group of random models, beside what was measured of them.

A case draws one group by its seed and yields ``(bound's name, measured, bound)`` once a model; the bound is NaN where
one of its assumptions fails.
"""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from sostenuto.benchmarks._random_models import random_group, random_path, random_readout
from sostenuto.data.batch import SequenceBatch
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor
from sostenuto.nn import ResidualRNN
from sostenuto.theory.bounds import remainder_bound, rkhs_norm_bound, signature_norm_bound, star_product_bound
from sostenuto.theory.discretization import discretization_bound, runge_kutta_bound
from sostenuto.theory.generalization import embedding_bound, generalization_bound
from sostenuto.theory.jackson import jackson_bound
from sostenuto.theory.ode import ORDERS, discretize, solve
from sostenuto.theory.risk_bounds import LOGISTIC_SLOPE
from sostenuto.theory.rkhs import rkhs_norm
from sostenuto.theory.signature import signature
from sostenuto.theory.stability import prediction_stability, signature_distance_bound
from sostenuto.theory.star_product import products_ending_in_time
from sostenuto.theory.taylor import taylor
from sostenuto.theory.tensor_field import RNNField

MODELS = 50
"""Models of one shape that are drawn together."""

Row = tuple[str, float, float]
Case = Callable[[int], Iterator[Row]]


def star_products(seed: int) -> Iterator[Row]:
    """Proposition 5, repaired, and the bound for any width: the largest products of one to four letters."""
    for index, field in enumerate(random_group(seed, MODELS, largest=3.0).fields):
        order = 1 + index % (4 if field.hidden_size < 32 else 3)
        product, bound = products_ending_in_time(field, order)[-1], star_product_bound(field, order)
        largest, longest = float(product.abs().max()), float(product.norm(dim=-1).max())
        yield "star product, any width", largest, bound.value
        yield "star product, by row sums", largest, bound.terms["row_sum"]
        yield "star product, proposition 5 repaired", longest, bound.terms["paper"]


def norms(seed: int) -> Iterator[Row]:
    """Theorem 1's ‖ξ‖ for any width: in closed form, by row sums, and with two levels summed exactly."""
    for index, field in enumerate(random_group(seed, MODELS, largest=0.2).fields):
        readout = random_readout(field, index)
        norm = float(rkhs_norm(field, 3, readout=readout).value)
        bound = rkhs_norm_bound(field, readout)
        yield "RKHS norm, any width", norm, bound.value
        yield "RKHS norm, by row sums", norm, bound.terms["row_sum"]
        yield "RKHS norm, two levels exact", norm, rkhs_norm_bound(field, readout, order=2).value


def errors(seed: int) -> Iterator[Row]:
    """Propositions 1 and 4: the network and the expansions against the solution to rounding."""
    group = random_group(seed, MODELS, steps=6, largest=3.0)
    exact = solve(group.batched, group.paths)
    with torch.no_grad():
        off = (discretize(group.batched, group.paths) - exact).norm(dim=-1).amax(-1)
    for index, field in enumerate(group.fields):
        near = discretization_bound(field, 6)
        yield "discretization", float(off[index]), near.value
        yield "discretization, proposition 1", float(off[index]), near.terms["paper"]
        order = 1 + index % 3
        error = taylor(field, group.paths[index], order, prefixes=True) - exact[index]
        remainder = remainder_bound(field, order)
        yield "Taylor remainder, any width", float(error.abs().max()), remainder.value
        yield "Taylor remainder, proposition 4", float(error.norm(dim=-1).max()), remainder.terms["paper"]


def runge_kutta(seed: int) -> Iterator[Row]:
    """Section 5: the terms 1/T^p of Runge–Kutta steps."""
    group = random_group(seed, MODELS, steps=10, largest=1.5)
    exact = solve(group.batched, group.paths)
    for method in ORDERS:
        with torch.no_grad():
            off = (discretize(group.batched, group.paths, method=method) - exact).abs().amax((-1, -2))
        for index, field in enumerate(group.fields):
            bound = runge_kutta_bound(field, group.paths[index], method=method)
            yield f"Runge–Kutta, {method}", float(off[index]), bound.value


def predictions(seed: int) -> Iterator[Row]:
    """Theorem 1 and section 3.2: how far a network is from its function in the RKHS, and how far it can be moved."""
    group = random_group(seed, MODELS, largest=0.2)
    share = 10 ** -(2 * torch.rand(MODELS, 1, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    moved = (1 - share) * group.paths + share * group.paths.flip(1, 2) * 0.5
    exact, other = solve(group.batched, group.paths), solve(group.batched, moved)
    with torch.no_grad():
        off = discretize(group.batched, group.paths) - exact
    for index, field in enumerate(group.fields):
        readout, length = random_readout(field, index), field.total_variation
        stability = prediction_stability(field, readout, group.paths[index], moved[index], total_variation=length)
        yield "stability of predictions", stability.measured, stability.bound.value
        # Without the term c/T, which hides the other: the limits of the two predictions.
        apart = float(((exact[index, -1] - other[index, -1]) @ readout).abs())
        limit = stability.bound.terms["norm"] * stability.bound.terms["signatures"]
        yield "stability of predictions, continuous time", apart, limit if stability.bound.applicable else math.nan
        bound = embedding_bound(field, off.shape[1], readout[None])
        yield "embedding, theorem 1", float((off[index] @ readout).abs().max()), bound.value


def signatures(seed: int) -> Iterator[Row]:
    """Proposition 3 and the distance of two signatures, for paths of lengths to 0.95."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(MODELS):
        length, mix = (torch.rand(2, generator=generator, dtype=torch.float64) * 0.95).tolist()
        steps, channels = (int(torch.randint(1, most, (1,), generator=generator)) for most in (13, 4))
        one, two = random_path(length, (2, steps, channels), generator)
        two = (1 - mix) * one + mix * two
        both = signature(torch.stack([one, two]), 6, basepoint=True, total_variation=length)
        bound = signature_norm_bound(length)
        yield "signature norm", float(both.norm().max()), bound.value
        yield "signature norm, proposition 3", float(both.norm().max()), bound.terms["paper"]
        apart = signature_distance_bound(one, two, total_variation=length, level=2)
        yield "signature distance", float((both.flat()[0] - both.flat()[1]).norm()), apart.value


def risks(seed: int) -> Iterator[Row]:
    """Theorems 2 and 3 at δ = 0.05: 100 sequences give the bound, 1000 new ones the loss that it bounds."""
    group = random_group(seed, MODELS // 2, steps=8, largest=0.1)
    generator = torch.Generator().manual_seed(seed)
    for index, field in enumerate(group.fields):
        length = field.total_variation
        paths = random_path(length, (1100, 8, field.input_size), generator)
        turned = (paths[:, -1, 0] > paths[:, 3, 0]).long()
        for outputs, name in ((2, "risk, two classes"), (3, "risk, three classes"), (1, "risk, squared distance")):
            model = _model(field, outputs, seed + index)
            targets = turned + (outputs > 2) * (paths[:, 4, 0] > 0) if outputs > 1 else paths[:, -1, :1]
            first, new = ((paths[part], targets[part]) for part in (slice(100), slice(100, None)))
            known = SequenceBatch(first[0], torch.full((100,), 8), first[1])
            bound = generalization_bound(model, known, total_variation=length, target_bound=1.0)
            yield name, _loss(model, *new), bound.value


def jackson(seed: int) -> Iterator[Row]:
    """wang2024, eq. (20): decaying terms fitted by the rates of the theorem, which is no less than the best."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.linspace(0, 30, 1501, dtype=torch.float64)
    for _ in range(MODELS):
        rates = 1.2 + 3 * torch.rand(3, generator=generator, dtype=torch.float64)
        sizes = torch.randn(3, generator=generator, dtype=torch.float64)
        smoothness, width = (int(torch.randint(1, most, (1,), generator=generator)) for most in (4, 9))
        beta = float(10 ** (2 * torch.rand(1, generator=generator) - 1))
        # y^(k)/β^k for k = 1, 2, … is Σ a(−c)^(k−1)e^{−cu} in u = βt; γ is the largest of e^u times that.
        slopes = [((sizes * (-rates) ** (k - 1)) * torch.exp((1 - rates) * u[:, None])).sum(1) for k in range(1, 5)]
        size = max(float(slope.abs().max()) for slope in slopes[: smoothness + 1])
        bound = jackson_bound(width, smoothness=smoothness, decay=beta, size=size)
        basis = torch.exp(-torch.arange(1, width + 1) / (smoothness + 1) * u[:, None])
        response = slopes[0] * torch.exp(-u)
        fitted = basis @ torch.linalg.lstsq(basis, response[:, None], driver="gelsd").solution
        yield "Jackson rate", float(torch.trapezoid((response - fitted[:, 0]).abs(), u)), bound.value


def _model(field: RNNField, outputs: int, seed: int) -> SequenceClassifier | SequenceRegressor:
    """Make the network of a field, with a random read-out."""
    torch.manual_seed(seed)
    layer = ResidualRNN(field.input_size, field.hidden_size, batch_first=True, activation=field.activation.name)
    with torch.no_grad():
        for name, value in (("weight_hh", field.recurrent), ("weight_ih", field.input_map), ("bias_ih", field.bias)):
            layer.weight(name, 0, False).copy_(value)
    return (SequenceClassifier(layer, outputs) if outputs > 1 else SequenceRegressor(layer, 1)).double().eval()


def _loss(model: SequenceClassifier | SequenceRegressor, values: Tensor, targets: Tensor) -> float:
    """Measure the cross-entropy in bits, which no rate of errors exceeds, or the squared distance."""
    with torch.no_grad():
        output = model(values)
    if targets.is_floating_point():
        return float((output - targets).square().sum(1).mean())
    return float(F.cross_entropy(output, targets)) * LOGISTIC_SLOPE


CASES: dict[str, Case] = {
    case.__name__: case for case in (star_products, norms, errors, runge_kutta, predictions, signatures, risks, jackson)
}
