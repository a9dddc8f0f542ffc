"""A trained model's answers, batch by batch, in the data's own words and units."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from sostenuto.data.batch import SequenceBatch
from sostenuto.data.dataset import BatchTransform
from sostenuto.data.encoding import Encoding
from sostenuto.training.batches import BatchSource

_MOST_STEPS = 1 << 22
"""Steps of a batch, over all of its sequences."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of each sequence.

    ``labels`` holds class names ``(n,)`` or numbers ``(n, …)``; with a target for every step, one array per sequence.
    ``probabilities`` ``(n, classes)`` comes with classes (one array per sequence where every step is classified).
    """

    labels: Any
    probabilities: Any = None


@torch.no_grad()
def raw_predictions(
    model: nn.Module,
    data: SequenceBatch,
    *,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    transform: BatchTransform | None = None,
    progress: bool = False,
) -> torch.Tensor:
    """Run ``model`` over ``data`` in order; outputs ``(n, …)`` on the CPU, per-step ones padded to the longest."""
    model.eval()
    # Fewer long sequences per batch, so that its steps bound the memory.
    batch_size = max(1, min(batch_size, _MOST_STEPS // data.values.shape[1]))
    source = BatchSource(data, batch_size, torch.device(device), transform=transform)
    outputs = []
    for batch, _, _ in tqdm(source.batches(), total=len(source), desc="predicting", disable=not progress):
        lengths = batch.lengths if source.is_ragged and (len(batch) > 1 or batch.is_ragged) else None
        output = model(batch.values, lengths, batch.timespans).float().cpu()
        outputs.append(output)
    longest = max(output.shape[1] for output in outputs)
    if outputs[0].ndim == 3:
        outputs = [nn.functional.pad(output, (0, 0, 0, longest - output.shape[1])) for output in outputs]
    return torch.cat(outputs)


def not_finite(raw: torch.Tensor, lengths: torch.Tensor) -> str:
    """Say in a sentence which sequences have outputs that are not finite; empty where all are.

    >>> not_finite(torch.tensor([[0.0], [torch.nan]]), torch.tensor([3, 3]))
    'expected finite outputs, got NaN or infinity for 1 of 2 sequences, the first at position 1.'
    """
    bad = ~raw.isfinite()
    if raw.ndim == 3 and raw.shape[1] >= int(lengths.max()):
        bad &= (torch.arange(raw.shape[1]) < lengths[:, None])[..., None]
    rows = bad.flatten(1).any(1).nonzero().flatten().tolist()
    if not rows:
        return ""
    counted = f"got NaN or infinity for {len(rows)} of {len(raw)} sequences, the first at position {rows[0]}"
    return f"expected finite outputs, {counted}."


def predictions(encoding: Encoding, raw: torch.Tensor, lengths: torch.Tensor) -> Predictions:
    """Translate raw outputs into class names and probabilities, or numbers in the target's unit.

    Scores that are not finite name no class: the label is None.
    """
    if encoding.classes:
        probabilities = raw.double().softmax(-1).numpy()
        labels = encoding.decode_classes(probabilities.argmax(-1))
        unanswered = ~np.isfinite(probabilities).all(-1)
        if unanswered.any():
            labels = labels.astype(object)
            labels[unanswered] = None
        if encoding.has_step_targets:
            return Predictions(_cut(labels, lengths), _cut(probabilities, lengths))
        return Predictions(labels, probabilities)
    numbers = encoding.decode_targets(raw.numpy())
    return Predictions(_cut(numbers, lengths) if encoding.has_step_targets else numbers)


def _cut(rows: np.ndarray, lengths: torch.Tensor) -> list[np.ndarray]:
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]
