"""Whether gradients survive: how much the loss depends on the state at each step."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sostenuto.audits.applicability import thinned
from sostenuto.audits.base import UNDECIDED, AuditResult, Check, Judged
from sostenuto.audits.batches import eval_batch
from sostenuto.audits.context import AuditContext
from sostenuto.audits.curvature.operator import twice_differentiable
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.stability.state_map import find_recurrence
from sostenuto.checks import InputError, check_count, require
from sostenuto.report.numbers import number, percent
from sostenuto.results import Numbers, Record
from sostenuto.training.processes import environment

MOST = 0.75
"""The share of sequences in which gradients must live."""
VANISHED, EXPLODED = 1e-4, 1e4
"""Shares of the gradient at the end: below the one it has vanished in the backward pass, above the other exploded."""


@dataclass(frozen=True, kw_only=True)
class LayerFlow(Record):
    """The gradient with respect to one layer's state at each of the ``steps``: root mean square over the sequences.

    ``ratio`` is its size at the first step over that at the last; ``rate`` the mean growth of its logarithm per step
    back in time (negative: it shrinks).
    """

    layer: int
    size: Numbers
    ratio: float
    rate: float


@dataclass(frozen=True, kw_only=True)
class GradientFlow(AuditResult):
    """Gradients of the loss with respect to the states through time, a curve a layer, and to every parameter.

    ``verdict`` is ``"healthy"``, ``"vanishing"`` or ``"exploding"``, by the worst layer; ``parameters`` names each
    parameter's gradient norm over the mean loss. ``alive`` is the share of sequences whose own gradients neither vanish
    nor explode in any layer: a few large ones may hide the others.
    """

    steps: tuple[int, ...]
    layers: tuple[LayerFlow, ...]
    parameters: dict[str, float]
    verdict: str
    alive: float = 1.0

    def summary(self) -> str:
        """Say what is left of the gradient at the first step."""
        worst = max(self.layers, key=lambda one: abs(math.log(max(one.ratio, 1e-300))))
        said = {
            "healthy": "Gradients reach the first step",
            "vanishing": "Gradients vanish in the backward pass before the first step",
            "exploding": "Gradients explode in the backward pass before the first step",
        }[self.verdict]
        where = f" in layer {worst.layer + 1}" if len(self.layers) > 1 else ""
        return f"{said}: they are {number(worst.ratio, digits=3)} times as large there as at the end{where}."

    def plot(self, ax: Any) -> None:
        """Draw the size of the gradient over time, a line a layer."""
        for one in self.layers:
            sizes = np.asarray(one.size)
            shown = sizes > 0
            ax.plot(np.asarray(self.steps)[shown], sizes[shown], label=f"layer {one.layer + 1}")
        if any(max(one.size) > 0 for one in self.layers):
            ax.set_yscale("log")
        ax.set_xlabel("step")
        ax.set_ylabel("gradient of the loss")
        ax.legend()


def gradient_flow(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    seed: int = 0,
    batch_size: int = 64,
) -> GradientFlow:
    r"""Measure \|∂L/∂h_t\| for the state handed on at every step, for each layer of the recurrence in ``model``.

    L is the cross-entropy of a sequence, or its squared error where ``y`` are floating-point numbers; ∂L/∂h_t counts
    all that comes after step t, so it ends one step before the last. Sizes are root mean squares over the
    sequences. Gradients of the parameters are those of the mean loss.

    Args:
        model: a classifier or regressor with one recurrent layer inside, or stacked ones in one module: of this
            library, of torch, or with a ``step``. One direction only.
        X: sequences of equal length, as for `noise_accuracy`.
        y: class indices, one per sequence or one per step; or numbers, as for `noise_accuracy`.
        seed: of models that draw numbers.
        batch_size: sequences at once.

    >>> class Last(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.rnn, self.head = nn.RNN(1, 4, batch_first=True), nn.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.head(self.rnn(x)[0][:, -1])
    >>> _ = torch.manual_seed(0)
    >>> gradient_flow(Last(), torch.randn(8, 60, 1), torch.arange(8) % 2).verdict
    'vanishing'
    """
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    data = eval_batch(model, X, y)
    require(data.lengths is None, "expected sequences of equal length", "got unequal ones", "cut them to one length")
    require(data.values.shape[1] >= 3, "expected sequences of at least 3 steps", f"got {data.values.shape[1]}")
    # A fused kernel would prepare its weights anew at every step.
    with audited(model, seed), twice_differentiable(), torch.enable_grad():
        data.scores(model, slice(0, 1), data.values[:1])
        layer = find_recurrence(model)
        weights = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        squares: list[Tensor] = []
        totals = {name: torch.zeros_like(parameter) for name, parameter in weights.items()}
        for rows in data.batches(batch_size):
            with _stepping(layer) as states:
                scores = data.scores(model, rows, data.values[rows])
            loss = data.losses(scores, rows).sum()
            gradients = torch.autograd.grad(loss, [*states.values(), *weights.values()], materialize_grads=True)
            by_step = torch.stack([part.detach().double().square().sum(2) for part in gradients[: len(states)]])
            squares.append(by_step.unflatten(0, (-1, states.components)).sum(1))
            for name, gradient in zip(weights, gradients[len(states) :], strict=True):
                totals[name] += gradient / len(data.true_targets)
    each = torch.cat(squares, 2)[:-1]  # (step, layer, sequence)
    finite = bool(each.isfinite().all())
    require(finite, "expected finite gradients of the loss", "got NaN or infinity", "look for NaN in the answers")
    sizes = each.mean(2).sqrt().cpu().numpy()
    layers = tuple(_flow(index, sizes[:, index]) for index in range(sizes.shape[1]))
    kept = thinned(len(sizes))
    device, dtype = place_of(model)
    return GradientFlow(
        model=type(model).__name__,
        method=f"The recurrence ran step by step, and the loss ({data.loss_name}) was differentiated by each state, in "
        f"{str(dtype)[6:]}.",
        seed=seed,
        settings={"batch_size": batch_size},
        checksum=data.checksum(),
        environment=environment(str(device)),
        steps=kept,
        layers=tuple(
            LayerFlow(layer=one.layer, size=tuple(one.size[k - 1] for k in kept), ratio=one.ratio, rate=one.rate)
            for one in layers
        ),
        parameters={name: float(total.norm()) for name, total in totals.items()},
        verdict=_verdict(layers),
        alive=_alive(each.sqrt().cpu().numpy()),
    )


class _States:
    """The states of one run, in order, and how many tensors make up one."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []
        self.components = 1

    def __len__(self) -> int:
        return len(self.found)

    def values(self) -> list[Tensor]:
        return self.found

    def keep(self, state: Any) -> Any:
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        # Copies, so that the gradient of each step's state is its own node in the graph.
        copies = tuple(part.clone() if part.requires_grad else part.clone().requires_grad_() for part in parts)
        self.components = len(copies)
        self.found.extend(copies)
        return copies[0] if isinstance(state, Tensor) else copies


@contextmanager
def _stepping(layer: nn.Module) -> Iterator[_States]:
    """Let a layer read its input one step at a time and keep every state on the way."""
    require(
        not getattr(layer, "bidirectional", False), "expected a recurrence of one direction", "got a bidirectional one"
    )
    states, whole = _States(), layer.forward
    batch_first = bool(getattr(layer, "batch_first", False))

    def forward(input: Any, state: Any = None, *, timespans: Any = None) -> tuple[Any, Any]:
        if not isinstance(input, Tensor) or input.ndim != 3:
            got = type(input).__name__
            raise InputError(f"expected the recurrence to be asked about a plain batch of sequences, got {got}.")
        axis = 1 if batch_first else 0
        parts = input.split(1, dim=axis)
        spans = [{}] * len(parts)
        if timespans is not None:
            spans = [{"timespans": span} for span in timespans.split(1, dim=axis)]
        outputs = []
        for part, span in zip(parts, spans, strict=True):
            output, state = whole(part, state, **span)
            state = states.keep(state)
            outputs.append(output)
        return torch.cat(outputs, dim=axis), state

    layer.forward = forward
    try:
        yield states
    finally:
        del layer.forward


def _alive(sizes: np.ndarray) -> float:
    """Give the share of sequences whose gradients live in every layer, of sizes (step, layer, sequence)."""
    reference = np.where(sizes[-1] > 0, sizes[-1], sizes.max(0))
    ratios = np.divide(sizes[0], reference, out=np.zeros_like(reference), where=reference > 0)
    return float(np.mean(np.all((ratios >= VANISHED) & (ratios <= EXPLODED), axis=0)))


def _flow(index: int, sizes: np.ndarray) -> LayerFlow:
    first, last = float(sizes[0]), float(sizes[-1])
    largest = float(sizes.max())
    reference = last if last > 0 else largest
    ratio = first / reference if reference > 0 else 0.0
    rate = math.log(max(ratio, 1e-300)) / max(len(sizes) - 1, 1)
    return LayerFlow(layer=index, size=tuple(sizes.tolist()), ratio=ratio, rate=rate)


def _verdict(layers: tuple[LayerFlow, ...]) -> str:
    if any(one.ratio > EXPLODED for one in layers):
        return "exploding"
    return "vanishing" if any(one.ratio < VANISHED for one in layers) else "healthy"


def _run(context: AuditContext) -> GradientFlow:
    data = context.affordable(backward=3, data=context.equal(32))
    return gradient_flow(context.model, data.values, data.targets, seed=context.seed)


def _judge(result: GradientFlow, limits: Mapping[str, float]) -> Judged:
    """Look at the worst layer; within a factor of three of a threshold nothing is said."""
    vanished, exploded = limits["vanished"], limits["exploded"]
    basis = f"{result.summary()} They vanish below {number(vanished)} and explode above {number(exploded)}."
    ratios = [layer.ratio for layer in result.layers]
    if max(ratios) > 3 * exploded:
        return Judged("bad", "Gradients explode", basis)
    if min(ratios) < vanished / 3:
        return Judged("bad", "Gradients vanish", basis)
    if result.alive < MOST:
        told = f"Gradients live in {percent(result.alive)} of the sequences alone."
        return Judged("unknown", UNDECIDED, f"{told} {basis}")
    healthy = max(ratios) < exploded / 3 and min(ratios) > 3 * vanished
    return Judged("good", "Gradients live", basis) if healthy else Judged("unknown", UNDECIDED, basis)


CHECK = Check(
    name="gradients",
    title="Do gradients survive?",
    caption="How much the loss depends on the state at each step.",
    order=40,
    result=GradientFlow,
    needs=("y", "module", "state"),
    run=_run,
    judge=_judge,
    thresholds={"vanished": VANISHED, "exploded": EXPLODED},
    number=lambda result: min(layer.ratio for layer in result.layers),
)
