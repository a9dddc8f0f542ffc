"""One step of training on static buffers: forward, backward, clip, Adam, average; on CUDA recorded as one graph."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from sostenuto.checks import check_choice, require
from sostenuto.experiments.tasks.device_part import Bucket, DevicePart, Drawn
from sostenuto.experiments.tasks.recipe import Recipe
from sostenuto.experiments.tasks.variation import mixed, varied
from sostenuto.models.base import SequenceModel
from sostenuto.models.prediction import SequenceToSequence
from sostenuto.models.readout import pool
from sostenuto.models.tokens import TokenClassifier
from sostenuto.training.optimizers import EvenAdam, Muon, inner_matrices
from sostenuto.training.state import WeightAverage, random_states, set_random_states

_WARM_UP = 3
_AHEAD = 8
"""Steps after which the host waits, asleep, for the device to have done those before: a spinning wait takes a core."""


class DeviceStep:
    """A model, its optimizer and the average of its weights, and the step that moves them.

    What a step needs of the host are three writes into buffers (indices, learning rate, weight of the average), so
    that on CUDA the step can be a graph, one for each bucket of lengths. The same code runs plainly on the CPU.
    """

    def __init__(self, model: SequenceModel, recipe: Recipe, part: DevicePart, buckets: list[Bucket]) -> None:
        self.model, self.recipe, self.part, self.buckets = model, recipe, part, buckets
        training, device = recipe.run.training, part.values.device
        if training.gradient_window:
            model.gradient_window = training.gradient_window
        self.uses_graph = recipe.device.graph and device.type == "cuda"
        packs = model.layer.bidirectional and part.lengths is not None
        require(not (packs and self.uses_graph), "expected graph=false for two directions", "got a graph")
        self.rate, self.embedding_rate = torch.zeros((), device=device), torch.zeros((), device=device)
        self.weight = torch.ones((), device=device)
        self.loss_sum = torch.zeros((), device=device, dtype=torch.float64)
        self.index = [torch.zeros(bucket.batch_size, dtype=torch.long, device=device) for bucket in buckets]
        self.optimizer = make_optimizer(model, recipe, self.rate, self.embedding_rate)
        self.average = WeightAverage(model, training.ema_decay) if training.ema_decay else None
        live = model.state_dict()
        self._averaged = [(self.average.tensors[name], live[name]) for name in live] if self.average else []
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._taken, self._reached = 0, None

    def take(self, bucket: int, index: Int[Tensor, " batch"], learning_rate: float, average_weight: float) -> None:
        """Run one step on the sequences at ``index``."""
        self.model.train()
        if self.uses_graph and bucket not in self._graphs:
            self._record(bucket)
        self.index[bucket].copy_(index, non_blocking=True)
        self.rate.fill_(learning_rate)
        self.embedding_rate.fill_(learning_rate * self.recipe.device.embedding_rate)
        self.weight.fill_(average_weight)
        if self.uses_graph:
            self._graphs[bucket].replay()
            self._keep_pace()
        else:
            self._step(bucket)

    def _keep_pace(self) -> None:
        self._taken += 1
        if self._taken % _AHEAD:
            return
        if self._reached is not None:
            self._reached.synchronize()
        self._reached = torch.cuda.Event(blocking=True)
        self._reached.record()

    def tensors(self) -> dict[str, Tensor]:
        """Name every tensor that a step changes, for checkpoints; they are written to in place."""
        named = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        if self.average is not None:
            named |= {f"average/{name}": value for name, value in self.average.tensors.items()}
        for number, state in enumerate(self.optimizer.state.values()):
            named |= {f"optimizer/{number}/{key}": value for key, value in state.items()}
        return named | {"loss_sum": self.loss_sum}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        mine = self.tensors()
        require(mine.keys() <= tensors.keys(), "expected a checkpoint of this recipe", "got another's")
        with torch.no_grad():
            for name, value in mine.items():
                value.copy_(tensors[name])

    def _step(self, bucket: int) -> None:
        drawn = self.part.drawn(self.index[bucket], self.buckets[bucket].steps)
        drawn, share = mixed(varied(drawn, self.recipe, self.part.order), self.recipe.device.mixing)
        scores = predict(self.model, drawn, self.recipe.device.readout_dropout)
        loss = losses(scores, drawn, self.recipe.run.training.label_smoothing)
        if share is not None:
            other = Drawn(drawn.values, drawn.targets.flip(0), drawn.lengths)
            loss = loss.lerp(losses(scores, other, self.recipe.run.training.label_smoothing), share)
        loss = loss.mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip = self.recipe.run.training.gradient_clip
        if clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        with torch.no_grad():
            self.loss_sum += loss.detach()
            for mean, value in self._averaged:
                if value.is_floating_point():
                    mean.lerp_(value, self.weight.to(value.dtype))
                else:
                    mean.copy_(value)

    def _record(self, bucket: int) -> None:
        """Warm up on another stream, put everything back as it was, and record the step without running it."""
        kept, states = {name: value.clone() for name, value in self.tensors().items()}, random_states()
        self.index[bucket].copy_(self.buckets[bucket].members[: len(self.index[bucket])])
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._step(bucket)
        torch.cuda.current_stream().wait_stream(stream)
        self.restore(kept)
        set_random_states(states)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        pool_id = next((one.pool() for one in self._graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool_id):
            self._step(bucket)
        self._graphs[bucket] = graph


def make_optimizer(
    model: nn.Module, recipe: Recipe, rate: Tensor, embedding_rate: Tensor | None = None
) -> torch.optim.Optimizer:
    """Make the optimizer with its state from the start; weight decay is for matrices alone, word vectors apart."""
    training = recipe.run.training
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "muon": Muon}
    check_choice("optimizer", training.optimizer, tuple(kinds))
    even = recipe.device.even_words
    require(not even or training.optimizer == "adamw", "expected adamw with even_words", f"got {training.optimizer!r}")
    kind = EvenAdam if even else kinds[training.optimizer]
    vectors = list(model.embedding.parameters()) if isinstance(model, TokenClassifier) else []
    inner = inner_matrices(model) if training.optimizer == "muon" else []
    apart = set(map(id, [*vectors, *inner]))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    others = [weight for weight in weights if id(weight) not in apart]
    decayed, plain = {"weight_decay": training.weight_decay, "lr": rate}, {"weight_decay": 0.0, "lr": rate}
    groups: list[dict[str, Any]] = [
        {"params": inner, "orthogonal": True, "matrix_rate": training.matrix_rate, **decayed},
        {"params": [weight for weight in others if weight.ndim > 1], **decayed},
        {"params": [weight for weight in others if weight.ndim <= 1], **plain},
        {"params": vectors, **decayed, "lr": rate if embedding_rate is None else embedding_rate, "even": even},
    ]
    options: dict[str, Any] = {"capturable": True, "fused": True} if rate.is_cuda else {}
    optimizer = kind([group for group in groups if group["params"]], lr=rate, **options)
    # One step at rate 0 makes the state; set to 0 it is that of an optimizer that has seen nothing.
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()
    optimizer.zero_grad(set_to_none=True)
    return optimizer


def predict(model: SequenceModel, drawn: Drawn, readout_dropout: float = 0.0) -> Float[Tensor, "batch ..."]:
    """Run a model of one direction on padded sequences as they are: what comes after an end is not looked at.

    One that looks ahead needs packed sequences, which asks the device for the lengths: no graph can.
    """
    both = model.layer.bidirectional
    values = model.embed(drawn.values) if isinstance(model, TokenClassifier) else drawn.values
    states = model.states(values, drawn.lengths if both else None, only_last=drawn.lengths is None)
    if isinstance(model, SequenceToSequence):
        return model.head(states).float()
    kept = pool(states, drawn.lengths, model.readout, bidirectional=both)  # pyright: ignore[reportArgumentType]
    kept = F.dropout(kept, readout_dropout, model.training)
    return model.head(kept).float()  # pyright: ignore[reportCallIssue]


def losses(scores: Float[Tensor, "batch ..."], drawn: Drawn, label_smoothing: float = 0.0) -> Float[Tensor, " batch"]:
    """Give each sequence's loss: cross-entropy for classes, mean squared error for numbers."""
    if not drawn.targets.is_floating_point():
        return F.cross_entropy(scores, drawn.targets, label_smoothing=label_smoothing, reduction="none")
    squares = squared_errors(scores, drawn)
    return squares.flatten(1).mean(1)


def squared_errors(scores: Float[Tensor, "batch ..."], drawn: Drawn) -> Float[Tensor, "batch ..."]:
    """Give the squared error of every number; a target for every step needs sequences of one length."""
    per_step = drawn.targets.ndim == 3 and drawn.targets.shape[1] == drawn.values.shape[1]
    require(not per_step or drawn.lengths is None, "expected sequences of one length for step targets", "got several")
    return (scores.reshape(drawn.targets.shape) - drawn.targets) ** 2


@contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    """Let float32 products of matrices round to TensorFloat-32 inside the block, where the device has it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def metric_sums(scores: Shaped[Tensor, "batch ..."], drawn: Drawn, target_scale: Tensor | None) -> Tensor:
    """Sum up right answers, or mean squared errors in the target's own unit, over a batch."""
    if target_scale is None:
        return (scores.argmax(-1) == drawn.targets).double().sum()
    squares = squared_errors(scores, drawn) * target_scale**2
    return squares.flatten(1).mean(1).double().sum()
