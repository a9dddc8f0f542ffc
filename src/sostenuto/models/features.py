"""Plain features of sequences, for the baselines: summaries, bags of tokens, recent values."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.data.batch import SequenceBatch

LAGS = (0, 1, 2, 4, 8)
"""Steps back that a prediction at every step may look."""

MOST_WORDS = 2048
_MOST_STEP_WORDS = 64
_CELLS = 1 << 22


def summary_features(batch: SequenceBatch) -> Float[Tensor, "batch feature"]:
    """Describe every channel by eight numbers, or tokens by their counts; float64.

    Mean, standard deviation, least, greatest, first and last value, slope of the least-squares line per step, mean
    absolute change per step (0 for a single step), each block over all channels in turn. Padding does not count.

    >>> batch = SequenceBatch.from_sequences([torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([[7.0]])])
    >>> summary_features(batch)[:, 2:].tolist()
    [[0.0, 5.0, 0.0, 5.0, 2.5, 2.5], [7.0, 7.0, 7.0, 7.0, 0.0, 0.0]]
    """
    if batch.values.ndim == 2:
        return token_counts(batch)
    chunk = max(1, _CELLS // batch.values[0].numel())
    parts = zip(batch.values.split(chunk), batch.lengths.split(chunk), strict=True)
    return torch.cat([_summaries(values.double(), lengths) for values, lengths in parts])


def token_counts(batch: SequenceBatch) -> Float[Tensor, "batch feature"]:
    """Count the tokens of each sequence, ``log(1 + count)``; ids share a counter modulo `MOST_WORDS`.

    >>> batch = SequenceBatch(torch.tensor([[3, 1, 3], [2, 0, 0]]), torch.tensor([3, 1]))
    >>> token_counts(batch)[:, :4].expm1().round().tolist()
    [[0.0, 1.0, 0.0, 2.0], [0.0, 0.0, 1.0, 0.0]]
    """
    counts = torch.zeros(len(batch), MOST_WORDS, dtype=torch.float64, device=batch.values.device)
    return counts.scatter_add_(1, batch.values % MOST_WORDS, batch.mask.double()).log1p_()


def step_features(
    values: Float[Tensor, "batch time channel"] | Int[Tensor, "batch time"],
) -> Float[Tensor, "batch time feature"]:
    """Give every step its own value and those `LAGS` steps before it, 0 before the start; tokens modulo 64, one-hot.

    >>> step_features(torch.tensor([[[1.0], [2.0], [3.0]]]))[0, 2].tolist()
    [3.0, 2.0, 1.0, 0.0, 0.0]
    """
    if values.ndim == 2:
        values = torch.nn.functional.one_hot(values % _MOST_STEP_WORDS, _MOST_STEP_WORDS).float()
    steps = values.shape[1]
    delayed = [torch.nn.functional.pad(values, (0, 0, lag, 0))[:, :steps] for lag in LAGS]
    return torch.cat(delayed, dim=2)


def _summaries(values: Tensor, lengths: Tensor) -> Tensor:
    steps = torch.arange(values.shape[1], device=values.device, dtype=values.dtype)
    mask = (steps < lengths[:, None])[:, :, None]
    count = lengths[:, None].to(values.dtype)
    mean = (values * mask).sum(1) / count
    moved = (values - mean[:, None]) * mask
    time = (steps - (lengths[:, None] - 1) / 2)[:, :, None] * mask
    change = values.diff(dim=1).abs() * mask[:, 1:]
    last = values.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, values.shape[2]))[:, 0]
    blocks = (
        mean,
        (moved.square().sum(1) / count).sqrt(),
        values.masked_fill(~mask, torch.inf).amin(1),
        values.masked_fill(~mask, -torch.inf).amax(1),
        values[:, 0],
        last,
        (time * moved).sum(1) / time.square().sum(1).clamp(min=0.25),
        change.sum(1) / (count - 1).clamp(min=1),
    )
    return torch.cat(blocks, dim=1)
