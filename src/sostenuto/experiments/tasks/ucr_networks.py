"""Trained recurrent networks for alemohammad2021's Table 2: RMSProp and early stopping, all folds and rates at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from sostenuto.data.dataset import Dataset
from sostenuto.estimators.classes import deal_folds

KINDS = ("gaussian", "identity", "gru")
SMALL = 1e-3
"""Deviation of all but the recurrent weights of the identity network (Le, Jaitly and Hinton 2015)."""
Weights = dict[str, Tensor]
"""Tensors whose first axis is the network."""


def initial_weights(kind: str, count: int, layers: int, width: int, classes: int) -> Weights:
    """Draw ``count`` networks of one input channel from torch's generator (alemohammad2021, appendix A.1).

    ``"gaussian"``: NTK initialization, N(0, 1) with the factors outside; ``"identity"``: recurrent weights 1, the rest
    small; ``"gru"``: uniform in ±1/√width, as torch does it.

    >>> sorted(initial_weights("gaussian", 2, 1, 4, 3))
    ['input0', 'readout', 'recurrent0']
    """
    weights: Weights = {}
    for layer in range(layers):
        entering = 1 if layer == 0 else width
        if kind == "gru":
            bound = width**-0.5
            shapes = {"input": (entering,), "recurrent": (width,), "input_bias": (), "recurrent_bias": ()}
            for name, shape in shapes.items():
                weights[f"{name}{layer}"] = torch.empty(count, 3 * width, *shape).uniform_(-bound, bound)
            continue
        scale = 1.0 if kind == "gaussian" else SMALL
        weights[f"input{layer}"] = scale * torch.randn(count, width, entering)
        if kind == "gaussian":
            weights[f"recurrent{layer}"] = torch.randn(count, width, width)
        else:
            weights[f"recurrent{layer}"] = torch.eye(width).repeat(count, 1, 1)
            weights[f"bias{layer}"] = torch.zeros(count, width)
    scale = {"gaussian": 1.0, "identity": SMALL, "gru": width**-0.5}[kind]
    weights["readout"] = scale * torch.randn(count, classes, width)
    if kind != "gaussian":
        weights["readout_bias"] = torch.zeros(count, classes)
    return weights


def class_scores(kind: str, weights: Weights, x: Float[Tensor, "network batch time"]) -> Tensor:
    """Return the scores ``(network, batch, class)`` after the last step."""
    below = x.permute(2, 0, 1)[..., None].contiguous()
    layers = sum(name.startswith("recurrent") and "bias" not in name for name in weights)
    for layer in range(layers):
        last = layer == layers - 1
        below = (_gru if kind == "gru" else _rectified)(kind, weights, layer, below, last)
    state, readout = below[-1], weights["readout"]
    if kind == "gaussian":
        return torch.bmm(state, readout.mT) * (2 / readout.shape[2]) ** 0.5
    return torch.baddbmm(weights["readout_bias"][:, None], state, readout.mT)


def _rectified(kind: str, weights: Weights, layer: int, below: Tensor, last: bool) -> Tensor:
    recurrent, entering = weights[f"recurrent{layer}"], weights[f"input{layer}"]
    inputs = below @ entering.mT
    if kind == "gaussian":
        # σ_w = √2, σ_u = 1, σ_b = 0; one input channel has the factor 1.
        recurrent, inputs = recurrent * (2 / recurrent.shape[2]) ** 0.5, inputs * entering.shape[2] ** -0.5
    else:
        inputs = inputs + weights[f"bias{layer}"][:, None]
    carried, state, states = recurrent.mT, torch.zeros_like(inputs[0]), []
    for entry in inputs.unbind(0):
        state = torch.relu(torch.baddbmm(entry, state, carried))
        states.append(state)
    return state[None] if last else torch.stack(states)


def _gru(kind: str, weights: Weights, layer: int, below: Tensor, last: bool) -> Tensor:  # noqa: ARG001 - one contract
    inputs = below @ weights[f"input{layer}"].mT + weights[f"input_bias{layer}"][:, None]
    carried, bias = weights[f"recurrent{layer}"].mT, weights[f"recurrent_bias{layer}"][:, None]
    state, states = torch.zeros_like(inputs[0, ..., : carried.shape[1]]), []
    for entry in inputs.unbind(0):
        inner = torch.baddbmm(bias, state, carried)
        reset, update, fresh = entry.chunk(3, dim=-1)
        own_reset, own_update, own_fresh = inner.chunk(3, dim=-1)
        gate = torch.sigmoid(update + own_update)
        new = torch.tanh(fresh + torch.sigmoid(reset + own_reset) * own_fresh)
        state = torch.lerp(new, state, gate)
        states.append(state)
    return state[None] if last else torch.stack(states)


COLUMNS = {"Gaussian RNN": "gaussian", "identity RNN": "identity", "GRU": "gru"}
SMOOTHING, EPSILON = 0.99, 1e-8
"""Of RMSProp, torch's defaults; the paper names none."""
TEST_BATCH = 256


@dataclass(frozen=True)
class Training:
    """How networks are trained (appendix A.1); the size of a batch is not in the paper."""

    folds: int
    epochs: int
    patience: int
    batch_size: int


def network_accuracy(
    dataset: Dataset, column: str, layers: int, width: int, rates: Sequence[float], training: Training, seed: int
) -> dict[str, Any]:
    """Return accuracies in percent, ``[rate][fold]``, on the fold held out (``validated``) and on the test part.

    Each network keeps the weights of its best epoch. The test accuracies of the networks that are not chosen are
    computed here, because weights are not kept, and looked at by nobody.
    """
    x, y, classes = _numbers(dataset)
    folds = torch.from_numpy(deal_folds(y[: len(dataset.train)].numpy(), training.folds, seed))
    count = int(folds.max()) + 1
    held = [fold for _ in rates for fold in range(count)]
    kind, learned = COLUMNS[column], len(dataset.train)
    weights = initial_weights(kind, len(held), layers, width, classes)
    stack = _Stack(
        kind, weights, torch.tensor([rate for rate in rates for _ in range(count)]), x[:learned], y[:learned]
    )
    best, validated, epochs = stack.fit([folds != fold for fold in held], training)
    right = []
    with torch.no_grad():
        for first in range(learned, len(x), TEST_BATCH):
            part = slice(first, first + TEST_BATCH)
            scores = class_scores(kind, best, x[part].expand(len(held), -1, -1))
            right.append((scores.argmax(2) == y[part]).float())
    shape = (len(rates), count)
    return {
        "validated": 100 * validated.reshape(shape).numpy(),
        "test": 100 * torch.cat(right, dim=1).mean(dim=1).reshape(shape).numpy(),
        "epochs": epochs.reshape(shape).numpy(),
    }


def _numbers(dataset: Dataset) -> tuple[Tensor, Tensor, int]:
    """Lay both parts out as one matrix, standardized by one mean and deviation of the training part."""
    assert dataset.test is not None
    parts = (dataset.train, dataset.test)
    rows = np.concatenate([np.stack([np.ravel(each) for each in part.sequences]) for part in parts])
    known = rows[: len(dataset.train)]
    names, indices = np.unique(np.concatenate([np.asarray(part.targets) for part in parts]), return_inverse=True)
    scaled = (rows - known.mean()) / known.std()
    return torch.from_numpy(scaled.astype(np.float32)), torch.from_numpy(indices.astype(np.int64)), len(names)


class _Stack:
    """Networks that train side by side, each on its own sequences with its own rate, until each has stopped."""

    def __init__(self, kind: str, weights: Weights, rates: Tensor, x: Tensor, y: Tensor) -> None:
        self.kind, self.rates, self.x, self.y = kind, rates, x, y
        self.weights = {name: value.requires_grad_() for name, value in weights.items()}
        self.squares = {name: torch.zeros_like(value) for name, value in weights.items()}

    def fit(self, training_parts: list[Tensor], training: Training) -> tuple[Weights, Tensor, Tensor]:
        """Train; return the best weights, their accuracy on what was held out, and the epochs run."""
        alive = torch.arange(len(training_parts))
        parts = torch.stack(training_parts)
        best = {name: value.detach().clone() for name, value in self.weights.items()}
        validated, waited, epochs = torch.full((len(parts),), -1.0), torch.zeros(len(parts)), torch.zeros(len(parts))
        for _ in range(training.epochs):
            finite = self._epoch(parts[alive], training.batch_size)
            accuracy = self._held_out(~parts[alive])
            improved = (accuracy > validated[alive]) & finite
            for name, value in best.items():
                value[alive[improved]] = self.weights[name].detach()[improved]
            validated[alive[improved]] = accuracy[improved]
            epochs[alive] += 1
            waited[alive] = torch.where(improved, 0.0, waited[alive] + 1)
            going = finite & (waited[alive] < training.patience)
            if not going.all():
                alive = alive[going]
                self._keep(going)
            if len(alive) == 0:
                break
        return best, validated.clamp(min=0.0), epochs

    def _epoch(self, parts: Tensor, batch_size: int) -> Tensor:
        """Go once through every network's own sequences; say which networks are still finite."""
        orders = [each.nonzero()[:, 0][torch.randperm(int(each.sum()))] for each in parts]
        longest = max(map(len, orders))
        # Folds differ by one sequence: the shorter are filled up with sequences of no weight.
        indices = torch.stack([torch.cat([order, order[: longest - len(order)]]) for order in orders])
        counts = torch.tensor([[len(order)] for order in orders])
        finite = torch.ones(len(parts), dtype=torch.bool)
        for first in range(0, longest, batch_size):
            part = indices[:, first : first + batch_size]
            weight = (torch.arange(first, first + part.shape[1]) < counts).float()
            scores = class_scores(self.kind, self.weights, self.x[part])
            losses = cross_entropy(scores.flatten(0, 1), self.y[part].flatten(), reduction="none").reshape(weight.shape)
            loss = (losses * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1.0)
            finite &= torch.isfinite(loss.detach())
            self._step(torch.autograd.grad(loss.sum(), list(self.weights.values())))
        return finite

    @torch.no_grad()
    def _step(self, gradients: Sequence[Tensor]) -> None:
        """RMSProp, with a learning rate for each network."""
        for (name, value), gradient in zip(self.weights.items(), gradients, strict=True):
            square = self.squares[name].mul_(SMOOTHING).addcmul_(gradient, gradient, value=1 - SMOOTHING)
            rate = self.rates.reshape(-1, *[1] * (value.ndim - 1))
            value -= rate * gradient / (square.sqrt() + EPSILON)

    @torch.no_grad()
    def _held_out(self, parts: Tensor) -> Tensor:
        """Return the accuracy of every network on the sequences it does not train on."""
        orders = [each.nonzero()[:, 0] for each in parts]
        longest = max(map(len, orders))
        indices = torch.stack([torch.cat([order, order.new_zeros(longest - len(order))]) for order in orders])
        counted = torch.arange(longest) < torch.tensor([[len(order)] for order in orders])
        right = class_scores(self.kind, self.weights, self.x[indices]).argmax(2) == self.y[indices]
        return (right & counted).sum(dim=1) / counted.sum(dim=1)

    def _keep(self, going: Tensor) -> None:
        """Drop the networks that have stopped: they cost as much as the others."""
        self.rates = self.rates[going]
        self.weights = {name: value.detach()[going].requires_grad_() for name, value in self.weights.items()}
        self.squares = {name: value[going] for name, value in self.squares.items()}
