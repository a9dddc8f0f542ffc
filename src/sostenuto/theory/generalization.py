"""`generalization_bound`: what fermanian2021 guarantees for a trained model, or which of its assumptions fails."""

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, linalg

from sostenuto.checks import check_fraction, check_positive, require
from sostenuto.data.batch import SequenceBatch
from sostenuto.theory.bound import Assumption, Bound, make_bound
from sostenuto.theory.bounds import rkhs_norm_bound, signature_norm_bound
from sostenuto.theory.discretization import discretization_bound
from sostenuto.theory.path_scale import path_lengths
from sostenuto.theory.risk_bounds import LOGISTIC_SLOPE, binary_bound, multiclass_bound, sequence_bound, stratified
from sostenuto.theory.tensor_field import RNNField, tensor_field


def embedding_bound(rnn: Any, steps: int, readout: Tensor | None = None, *, total_variation: float = 0.5) -> Bound:
    """Bound |z_j − ξ(X)|: how far the outputs of T = ``steps`` steps are from a function in the RKHS.

    ‖ψ‖_op·c/T with c/T of `discretization_bound`, where (A₂) holds as `rkhs_norm_bound` checks it; the term ``norm``
    bounds ‖ξ‖. Reference: fermanian2021, theorem 1 and eq. (14).

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.eye(2) / 100, torch.ones(2, 1) / 100)
    >>> embedding_bound(field, 100, torch.ones(1, 2)).value < 2e-4
    True
    """
    field = tensor_field(rnn, total_variation=total_variation)
    near, norm = discretization_bound(field, steps), rkhs_norm_bound(field, readout)
    size = (
        1.0
        if readout is None
        else float(linalg.matrix_norm(readout.detach().double().reshape(-1, field.hidden_size), 2))
    )
    terms = {"readout": size, "discretization": near.value, "norm": norm.value}
    return make_bound("|z − ξ(X)|", size * near.value, terms, [*near.assumptions, *norm.assumptions])


def generalization_bound(
    model: Any,
    data: SequenceBatch,
    delta: float = 0.05,
    *,
    total_variation: float = 0.5,
    order: int = 3,
    target_bound: float | None = None,
) -> Bound:
    """Bound the risk of a trained model on new sequences, with probability 1 − ``delta`` over the training part.

    Classes: the probability of an error, from the loss in bits (theorem 2; two classes by the difference of their
    scores). Numbers, one row per sequence or one per step: the expected squared distance (theorem 3). B is
    `rkhs_norm_bound` with the read-out's bias as α_0, rounded up to a grid over which δ is shared, since it was
    seen after training.

    Args:
        model: a model with ``layer`` (a ResidualRNN) and ``head`` (linear), read out at the last step or in the mean.
        data: the sequences it was trained on, as it sees them (scaled), with targets.
        delta: δ.
        total_variation: L, which all sequences of the distribution must keep, chosen in advance. That the given ones
            do is checked; that the others do is assumed.
        order: levels of the norm that are summed exactly.
        target_bound: K_y ≥ ‖y‖, for numbers, chosen in advance.

    The record has the terms, and where an assumption fails its name and value; a value above 1 says nothing about a
    probability. Reference: fermanian2021, theorems 2 and 3, as derived in ``docs/rnn_as_kernel.md``.

    >>> from types import SimpleNamespace
    >>> from sostenuto.nn import ResidualGRU
    >>> model = SimpleNamespace(layer=ResidualGRU(1, 2, batch_first=True), head=torch.nn.Linear(2, 2))
    >>> data = SequenceBatch(torch.zeros(4, 3, 1), torch.full((4,), 3), torch.zeros(4, dtype=torch.long))
    >>> generalization_bound(model, data).reason
    'not applicable: f(h, x) = σ(U h + V x + b) fails'
    """
    check_fraction("delta", delta)
    check_positive("delta", delta)
    require(data.targets is not None, "expected data with targets", "got none")
    require(data.timespans is None, "expected evenly sampled data", "got timespans: the theory has none")
    field = tensor_field(model.layer, total_variation=total_variation)
    quantity = "risk on new sequences"
    classes = data.targets is not None and not data.targets.is_floating_point()
    weight, bias = _difference(model.head) if classes and len(model.head.weight) == 2 else _head(model.head)
    embedded = embedding_bound(field, int(data.lengths.min()), weight)
    assumptions = [*embedded.assumptions, *_data_assumptions(model, data, total_variation, target_bound)]
    if not isinstance(field, RNNField) or not all(each.holds for each in assumptions):
        return make_bound(quantity, math.nan, dict(embedded.terms), assumptions)
    bounded = rkhs_norm_bound(field, weight, order=order)
    # The bias is α_0, the constant function's coefficient.
    largest = math.hypot(bounded.value, float(bias.abs().max()))
    joint = math.hypot(bounded.terms["all_outputs"], float(bias.norm()))
    risk = _risk(model, data, classes)
    settings: dict[str, Any] = {"total_variation": total_variation, "output_error": embedded.value}
    count = len(data.lengths)
    if not classes:
        norm, share = stratified(largest, delta)
        assert target_bound is not None
        bound = sequence_bound(risk, norm, len(weight), target_bound, count, share, **settings)
    elif len(weight) == 1:
        norm, share = stratified(largest, delta)
        # log₂(1 + e^u) − log₂(1 + e^−u) = u/ln 2: the logistic loss varies half as much as its slope allows.
        spread_of_loss = LOGISTIC_SLOPE * norm * signature_norm_bound(total_variation).value
        bound = binary_bound(risk, norm, count, share, loss_range=spread_of_loss, **settings)
    else:
        norm, share = stratified(joint, delta)
        bound = multiclass_bound(risk, norm, len(weight), count, share, **settings)
    return make_bound(bound.quantity, bound.value, {**bound.terms, "norm": norm, "delta": share}, assumptions)


def _data_assumptions(
    model: Any, data: SequenceBatch, total_variation: float, target_bound: float | None
) -> list[Assumption]:
    longest = float(path_lengths(replace(data, values=data.values.double()), basepoint=True).max())
    readout = getattr(model, "readout", "last")
    # Sequences scaled to L exactly may be longer by a rounding of float32.
    short = longest <= total_variation * (1 + 1e-6)
    assumptions = [
        Assumption(f"total variation ≤ {total_variation:g} of every sequence", short, longest),
        Assumption("a read-out that is linear in the states, last or mean,", readout in ("last", "mean")),
    ]
    targets = data.targets
    assert targets is not None
    if targets.is_floating_point():
        require(target_bound is not None, "expected target_bound, a bound on ‖y‖ chosen in advance", "got none")
        largest = float(targets.double().flatten(2 if data.has_step_targets else 1).norm(dim=-1).max())
        assumptions.append(Assumption(f"‖y‖ ≤ {target_bound:g}", largest <= float(target_bound or 0), largest))
    else:
        assumptions.append(Assumption("one class per sequence, not one per step,", not data.has_step_targets))
    return assumptions


def _head(head: Any) -> tuple[Tensor, Tensor]:
    weight = head.weight.detach().double()
    return weight, weight.new_zeros(len(weight)) if head.bias is None else head.bias.detach().double()


def _difference(head: Any) -> tuple[Tensor, Tensor]:
    """Two scores are one: only their difference decides, and the cross-entropy is its logistic loss."""
    weight, bias = _head(head)
    return weight[1:] - weight[:1], bias[1:] - bias[:1]


def _risk(model: Any, data: SequenceBatch, classes: bool) -> float:
    """Measure the empirical risk: cross-entropy in bits, or the squared distance averaged over steps."""
    ragged = bool((data.lengths != data.values.shape[1]).any())
    was_training = model.training
    model.eval()
    with torch.no_grad():
        output = model(data.values, data.lengths if ragged else None).double()
    model.train(was_training)
    targets = data.targets
    assert targets is not None
    if classes:
        return float(F.cross_entropy(output, targets)) * LOGISTIC_SLOPE
    squares = (output.reshape(targets.shape) - targets.double()) ** 2
    if not data.has_step_targets:
        return float(squares.flatten(1).sum(1).mean())
    each = squares.flatten(2).sum(2).masked_fill(~data.mask, 0.0)
    return float((each.sum(1) / data.lengths).mean())
