"""The memory of a model that reads tokens: how its answer changes when one token is said once more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.memory.tail import Tail, fit_tail
from sostenuto.audits.model import audited, place_of
from sostenuto.checks import InputError, check_count, require
from sostenuto.report.numbers import number
from sostenuto.results import Numbers, Record
from sostenuto.training.processes import environment


@dataclass(frozen=True, kw_only=True)
class TokenMemory(Record):
    """How much the n-th repetition of one token still changes the answer, and the law of its decay."""

    token: int
    name: str
    memory: Numbers
    tail: Tail


@dataclass(frozen=True, kw_only=True)
class RepeatedTokens(AuditResult):
    """The memory of repeated tokens, a curve each, for 1 … ``horizon`` repetitions."""

    horizon: int
    tokens: tuple[TokenMemory, ...]

    def summary(self) -> str:
        """Say by which law the effect of one more repetition dies out, token by token."""
        parts = []
        for one in self.tokens:
            rate = f" at rate {number(one.tail.rate, digits=3)}" if one.tail.rate is not None else ""
            parts.append(f"{one.name}: {one.tail.kind}{rate}")
        return f"What one more repetition of a token still changes, up to {self.horizon} of them: {'; '.join(parts)}."

    def plot(self, ax: Any) -> None:
        """Draw the change of the answer over the repetitions, a line a token."""
        for one in self.tokens:
            memory = np.asarray(one.memory)
            ax.plot(np.arange(1, len(memory) + 1)[memory > 0], memory[memory > 0], label=one.name)
        if any(max(one.memory) > 0 for one in self.tokens):
            ax.set_yscale("log")
        ax.set_xlabel("repetitions")
        ax.set_ylabel("change of the answer")
        ax.legend()


def token_memory(
    model: nn.Module,
    tokens: Sequence[int],
    horizon: int,
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> RepeatedTokens:
    r"""Measure \|H(n times the token) − H(n − 1 times)\|_∞ for n = 2 … ``horizon``, for each of the ``tokens``.

    Reference: wang2024, appendix B.

    Args:
        model: maps token ids ``(batch, time)`` to ``(batch, out)``, or to ``(batch, time, out)`` whose last step
            answers. Each number of repetitions is one call, so nothing is padded.
        tokens: ids.
        horizon: the most repetitions, at least 6.
        names: what to call them; their ids if left out.
        seed: of models that draw numbers.

    >>> class Tired(nn.Module):
    ...     def forward(self, ids):
    ...         return (1 - 0.8 ** torch.tensor(float(ids.shape[1]))) * ids[:, :1].double()
    >>> found = token_memory(Tired(), [3], 40)
    >>> found.tokens[0].tail.kind, round(found.tokens[0].tail.rate, 3)
    ('exponential', 0.223)
    """
    check_count("horizon", horizon, least=6)
    check_count("seed", seed, least=0)
    ids = [int(token) for token in tokens]
    require(len(ids) > 0, "expected at least one token", "got none")
    called = [str(token) for token in ids] if names is None else [str(name) for name in names]
    require(len(called) == len(ids), f"expected {len(ids)} names, one per token", f"got {len(called)}")
    device, dtype = place_of(model)
    with audited(model, seed):
        answers = torch.stack(
            [_answer(model, torch.tensor(ids, device=device)[:, None].repeat(1, n)) for n in range(1, horizon + 1)]
        )
    change = torch.diff(answers.double(), dim=0).cpu().numpy()
    noise = 64 * torch.finfo(dtype).eps * float(answers.abs().max())
    lags = np.arange(1.0, horizon)
    found = tuple(
        TokenMemory(
            token=token,
            name=name,
            memory=tuple(np.abs(change[:, index]).max(-1).tolist()),
            tail=fit_tail(lags, change[:, index], noise=noise),
        )
        for index, (token, name) in enumerate(zip(ids, called, strict=True))
    )
    return RepeatedTokens(
        model=type(model).__name__,
        method="The same token was said 1, 2, 3 … times, and the answers to neighboring numbers compared.",
        seed=seed,
        environment=environment(str(device)),
        horizon=horizon,
        tokens=found,
    )


def _answer(model: nn.Module, ids: Tensor) -> Float[Tensor, "token out"]:
    """Ask about whole sequences of ids and insist on one tensor of scores a sequence."""
    output = model(ids)
    if not isinstance(output, Tensor) or output.ndim not in (2, 3) or len(output) != len(ids):
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise InputError(f"expected the model to return ({len(ids)}, out) or ({len(ids)}, time, out), got {got}.")
    return output[:, -1] if output.ndim == 3 else output
