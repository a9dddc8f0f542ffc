"""One step of training: forward, backward, clipping, optimizer, average; run plainly or recorded as a CUDA graph."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from jaxtyping import Float, Int
from torch import Tensor, nn

from sostenuto.checks import require
from sostenuto.data.batch import SequenceBatch
from sostenuto.training.batches import BatchSource, subsample_steps
from sostenuto.training.config import TrainingConfig
from sostenuto.training.objective import Objective
from sostenuto.training.optimizers import clip_gradients, make_state
from sostenuto.training.state import TrainingState, random_numbers, random_states, set_random_states

Penalty = Callable[[nn.Module], Float[Tensor, ""]]
_EVALUATION_SEED = 968
_WARM_UP = 3
_AHEAD = 8
"""Steps after which the host waits, asleep, for the device to have done those before: a spinning wait takes a core."""


class Step:
    """All that happens to the weights in one step; ``loss_sum`` adds up on the device what the steps minimize.

    ``model`` is what answers (wrapped, in several processes), ``state`` holds what a step changes.
    """

    def __init__(
        self,
        model: nn.Module,
        state: TrainingState,
        objective: Objective,
        config: TrainingConfig,
        source: BatchSource,
        accelerator: Accelerator,
        penalty: Penalty | None = None,
    ) -> None:
        self.model, self.state, self.objective, self.config = model, state, objective, config
        self.source, self.accelerator, self.penalty = source, accelerator, penalty
        self.parameters = list(model.parameters())
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=source.device)

    def epoch(self, epoch: int, start: int) -> Iterator[tuple[Callable[[], None], Int[Tensor, " batch"]]]:
        """Yield, for every batch from number ``start`` on, its step as a call, and the indices of its sequences."""
        for batch, counts, whole in self.source.batches(epoch, start):
            yield partial(self._take, batch, counts, self.units(whole)), whole

    def units(self, whole: Int[Tensor, " batch"]) -> float:
        """Count what all processes' shares of a batch contribute to the mean, without asking the device."""
        if not self.objective.steps:
            return float(len(whole))
        lengths, most = self.source.lengths[whole], self.config.subsample
        return float((lengths.clamp(max=most) if most else lengths).sum())

    def varied(self, batch: SequenceBatch) -> SequenceBatch:
        """Take steps at random and add noise, as the settings say; noise stays out of the padding."""
        if self.config.subsample:
            batch = subsample_steps(batch, self.config.subsample)
        if self.config.input_noise and batch.values.is_floating_point():
            noise = self.config.input_noise * torch.randn_like(batch.values)
            if self.source.is_ragged:
                noise = noise.masked_fill(~batch.mask[..., None], 0.0)
            batch = batch.with_values(batch.values + noise)
        return batch

    def _take(self, batch: SequenceBatch, counts: Tensor, units: float | Tensor) -> None:
        config, batch = self.config, self.varied(batch)
        with self.accelerator.autocast():
            losses = self.objective.losses(predict(self.model, batch, self.source).float(), batch)
        total = torch.dot(losses, counts)
        minimized = total * (self.accelerator.num_processes / units)
        if self.penalty is not None:
            minimized = minimized + self.penalty(self.state.model)
        for parameter in self.parameters:
            parameter.grad = None
        minimized.backward()
        if config.gradient_clip:
            clip_gradients(self.parameters, config.gradient_clip)
        self.state.optimizer.step()
        if self.state.average is not None:
            self.state.average.blend(self.state.model)
        self.loss_sum += total.detach()


class GraphStep(Step):
    """The same, recorded as a CUDA graph for each shape of batches and replayed: all data lie on the device.

    What a step needs of the host are writes into buffers: indices, learning rates, weight of the average.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        config, layer = self.config, getattr(self.model, "layer", None)
        hint = "set graph = false"
        require(self.accelerator.num_processes == 1, "expected a single process for a graph", "got several", hint)
        require(config.precision != "bf16", "expected float32 or tf32 for a graph", "got bf16", hint)
        require(self.penalty is None, "expected no rkhs_penalty for a graph", "got one", hint)
        packs = self.source.is_ragged and getattr(layer, "bidirectional", False)
        require(not packs, "expected one direction, or sequences of one length, for a graph", "got neither", hint)
        even = self.source.data.timespans is None
        require(even, "expected sequences sampled at even times for a graph", "got timespans", hint)
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        # What a graph reads has to live as long as the graph does.
        self._indices: dict[tuple[int, int], Tensor] = {}
        self._counts: dict[tuple[int, int], Tensor] = {}
        self._taken, self._reached = 0, None

    def epoch(self, epoch: int, start: int) -> Iterator[tuple[Callable[[], None], Int[Tensor, " batch"]]]:
        """Yield the steps as replays; the indices go to the device once per epoch, what a step needs is then a view."""
        pieces = self.source.pieces(epoch)
        wholes = [whole for _, whole in pieces]
        indices = torch.cat(wholes).to(self.source.device).split([len(whole) for whole in wholes])
        for (bucket, whole), index in list(zip(pieces, indices, strict=True))[start:]:
            yield partial(self._replay, bucket, index), whole

    def _replay(self, bucket: int, index: Tensor) -> None:
        shape = bucket, len(index)
        if shape not in self._graphs:
            self._graphs[shape] = self._recorded(shape, index)
        self._indices[shape].copy_(index, non_blocking=True)
        self._graphs[shape].replay()
        self._keep_pace()

    def _keep_pace(self) -> None:
        self._taken += 1
        if self._taken % _AHEAD:
            return
        if self._reached is not None:
            self._reached.synchronize()
        self._reached = torch.cuda.Event(blocking=True)
        self._reached.record()

    def _recorded(self, shape: tuple[int, int], index: Tensor) -> torch.cuda.CUDAGraph:
        """Warm up on another stream, put everything back as it was, and record the step without running it."""
        self._indices[shape] = index.clone()
        if not self.state.optimizer.state:
            make_state(self.state.optimizer)
        self._counts[shape] = torch.ones(len(index), device=index.device)
        kept, states = {name: value.clone() for name, value in self._tensors().items()}, random_states()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._gathered_step(shape)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.no_grad():
            for name, value in self._tensors().items():
                value.copy_(kept[name])
        set_random_states(states)
        self.state.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        pool = next((other.pool() for other in self._graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool):
            self._gathered_step(shape)
        return graph

    def _gathered_step(self, shape: tuple[int, int]) -> None:
        batch, counts = self.source.gathered(shape[0], self._indices[shape]), self._counts[shape]
        units = self.objective.units(batch).sum() if self.objective.steps else float(len(counts))
        self._take(batch, counts, units)

    def _tensors(self) -> dict[str, Tensor]:
        """Name every tensor that a step changes in place."""
        return {**self.state.tensors(), "loss_sum": self.loss_sum}


def predict(model: nn.Module, batch: SequenceBatch, source: BatchSource) -> Float[Tensor, "batch ..."]:
    """Run ``model`` on a batch of ``source``; lengths are given where they differ."""
    return model(batch.values, batch.lengths if source.is_ragged else None, batch.timespans)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    objective: Objective,
    source: BatchSource,
    *,
    autocast: Callable[..., AbstractContextManager[Any]] = nullcontext,
    total: Callable[[Tensor], Tensor] = torch.Tensor.cpu,
) -> tuple[float, float]:
    """Return the mean loss and the metric of ``model`` on ``source``; ``total`` adds up over all processes.

    What a batch transform draws is the same whenever a part is scored.
    """
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64, device=source.device)
    with random_numbers(_EVALUATION_SEED, source.device):
        for batch, counts, _ in source.batches():
            with autocast():
                prediction = predict(model, batch, source).float()
            parts = (objective.losses(prediction, batch), objective.metrics(prediction, batch), objective.units(batch))
            sums += torch.stack([(part * counts).sum().double() for part in parts])
    loss, metric, units = total(sums).tolist()
    return loss / units, objective.finish(metric, units)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Let float32 products of matrices round to TensorFloat-32 inside the block, where the device has it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
