"""Whether a model answers each sequence by itself: not by the others of its batch, nor by what it was asked before."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sostenuto.audits.batches import EvalBatch
from sostenuto.audits.model import audited, place_of

FEW, MANY = 4, 32
SAME = 1e-4
"""Answers that differ by less than this share of what they vary by are the same."""
MORE = 10
"""By so many times must a change that should not matter outdo one of random numbers, or of the input's last digit."""
OF_PAST = (
    "its answers to the same sequences differ from call to call though torch's random numbers are the same, as where a "
    "state is kept between calls"
)
OF_BATCH = "its answer to a sequence depends on the others of the batch, as with a normalization left in training mode"
OF_ROW = "its answer to a sequence depends on its place in the batch"
OF_SIZE = "its answer to a sequence depends on how many are asked about at once"
OF_GRADIENTS = "its answers change where gradients are asked for, so that what an attack sees is not what it answers"
OF_PADDING = "its answers change with what stands in the padding, beyond the end of the sequences"


def misconduct(model: nn.Module, data: EvalBatch, seed: int) -> str:
    """Say why no number of this model means anything by itself; empty where each sequence is answered alone.

    A few sequences are asked about in ways that must not matter: again after others, beside others, with gradients,
    with the padding of others, alone and among many, and in the reverse order. torch's random numbers are the same in
    each call. A model that draws numbers answers differently in other batches, but not by much more than with other
    numbers; one that amplifies rounding not by much more than after a change of the input's last digit.

    >>> from sostenuto.audits.batches import eval_batch
    >>> class Last(nn.Module):
    ...     def forward(self, x):
    ...         return torch.cat([-x[:, -1], x[:, -1]], 1)
    >>> X = torch.randn(20, 5, 1, generator=torch.Generator().manual_seed(0))
    >>> misconduct(Last(), eval_batch(Last(), X, torch.arange(20) % 2), 0)
    ''
    """
    if len(data.values) < 3 * FEW:
        return ""
    order = torch.randperm(len(data.values), generator=torch.Generator().manual_seed(seed))
    return next((told for told, differs in _Asked(model, data, order, seed).trials() if differs), "")


@dataclass
class _Asked:
    """A model, sequences in an order drawn by chance, and the first few of them, which are asked about again."""

    model: nn.Module
    data: EvalBatch
    order: Int[Tensor, " row"]
    seed: int

    def trials(self) -> Iterator[tuple[str, bool]]:
        """Ask in one way after the other, and say whether the answers changed."""
        own, second, third = self.order[: 3 * FEW].split(FEW)
        both = torch.cat([own, second])
        first = self.answers(both)
        spread = SAME * (float((first - first.mean(0)).abs().max()) + 1e-30)
        beside = self.answers(torch.cat([own, third]))
        again = self.answers(both)
        yield OF_PAST, _apart(first, again) > spread
        yield OF_BATCH, _apart(first[:FEW], beside[:FEW]) > spread
        # From here on kernels may differ, and with them the last digits.
        spread += MORE * _apart(first, self.answers(both, last_digit=True))
        yield OF_GRADIENTS, _apart(first, self.answers(both, gradients=True)) > spread
        if self.data.lengths is not None:
            yield OF_PADDING, _apart(first, self.answers(both, padding=True)) > spread
        spread += MORE * _apart(first, self.answers(both, seed=self.seed + 1))
        yield OF_ROW, _apart(first, self.answers(both.flip(0)).flip(0)) > spread
        alone = torch.cat([self.answers(row) for row in own.split(1)])
        many = self.answers(self.order[:MANY])
        yield OF_SIZE, max(_apart(first[:FEW], alone), _apart(first[:FEW], many[:FEW])) > spread

    def answers(
        self,
        rows: Int[Tensor, " row"],
        *,
        gradients: bool = False,
        last_digit: bool = False,
        padding: bool = False,
        seed: int | None = None,
    ) -> Float[Tensor, "row ..."]:
        """Ask about some sequences, in evaluation mode, as they are or changed where it must not matter."""
        data = self.data.take(rows)
        if padding:
            swapped = ~data.mask & ~data.mask.roll(1, 0)
            data = replace(data, values=torch.where(swapped[:, :, None], data.values.roll(1, 0), data.values))
        values = data.values
        if last_digit:
            digit = torch.finfo(place_of(self.model)[1]).eps
            up = torch.randint(0, 2, values.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
            values = values * (1 + 2 * digit * up)
        with audited(self.model, self.seed if seed is None else seed), torch.set_grad_enabled(gradients):
            asked = values.clone().requires_grad_(gradients)
            found = data.answers(self.model, slice(0, len(rows)), asked).detach().double().cpu()
        return torch.where(data.mask[:, :, None], found, 0.0) if data.has_step_targets else found


def _apart(one: Tensor, other: Tensor) -> float:
    """Give the largest difference; answers that are no number differ from none."""
    return float((one - other).abs().nan_to_num(0.0, 0.0, 0.0).max())
