"""What a model answers to the probes of a memory function: sequences that are zero but for one sudden change.

Three probes ask the same thing of a linear model, each by the difference that isolates one lag:

    heaviside   x from some step on                    H_t(u^x) − H_(t−1)(u^x)     wang2024, eq. (5)
    impulse     x at one step                          H_t(i^x)                    eq. (119)
    reversed    x until some step, then nothing        H_t(r^x) − H_(t+1)(r^x)     eq. (126)

always less the answer to silence, H(0), without which a bias would make the ratio infinite (docs/errata.md). Silence
may also be a sequence of the data, to which the probe is then added. A causal
model that answers at every step is read along one sequence, lag by lag. Any other one is evaluated once per lag, the
change that many steps before the end of a sequence of fixed length; for the reversed probe this is so for every model.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.model import call_model, place_of, takes_lengths
from sostenuto.checks import require

PROBES = ("heaviside", "impulse", "reversed")
MOST_ASKED = 192
"""Lags asked one by one of a model that answers at the end only: beyond so many they are thinned out."""

Directions = Float[Tensor, "direction channel"]
Answers = Float[np.ndarray, "direction lag out"]


@dataclass(frozen=True, eq=False)
class Prober:
    """Asks ``model`` about changes of its input and returns what is owed to each lag."""

    model: nn.Module
    probe: str
    horizon: int
    lead: int
    batch_size: int
    causal: bool
    at_every_step: bool
    baseline: Float[Tensor, "1 span channel"]
    silence: Float[Tensor, "#time out"]
    grain: float
    most_lags: int = MOST_ASKED

    @classmethod
    def prepare(
        cls,
        model: nn.Module,
        probe: str,
        horizon: int,
        baseline: Float[Tensor, "time channel"],
        *,
        lead: int,
        batch_size: int,
        most_lags: int = MOST_ASKED,
    ) -> "Prober":
        """Look whether the model answers at every step, and whether an answer is untouched by what comes later."""
        device, dtype = place_of(model)
        silent = baseline.to(device, dtype)[None]
        answer = _answer(model, silent)
        # Under automatic mixed precision the answers are coarser than the weights: they are rounded once, at the end.
        grain = max(64 * torch.finfo(dtype).eps, 4 * torch.finfo(answer.dtype).eps)
        at_every_step = answer.ndim == 3
        causal = not at_every_step or _is_causal(model, silent, answer, grain / 4)
        kept = answer[0, lead:] if at_every_step else answer
        return cls(
            model, probe, horizon, lead, batch_size, causal, at_every_step, silent, kept.double(), grain, most_lags
        )

    @property
    def streams(self) -> bool:
        """Whether one sequence answers for all lags."""
        return self.at_every_step and self.causal and self.probe != "reversed"

    @property
    def lags(self) -> np.ndarray:
        """Lags that are answered, from 0 to the horizon."""
        if self.streams or self.horizon < self.most_lags:
            return np.arange(self.horizon + 1)
        near = np.arange(self.most_lags // 4)
        far = np.geomspace(len(near), self.horizon, self.most_lags - len(near)).round().astype(int)
        return np.unique(np.concatenate([near, far]))

    def noise(self, answers_largest: float) -> float:
        """Bound the rounding error of a difference of two answers."""
        return self.grain * answers_largest

    def run(self, directions: Directions) -> tuple[Answers, float]:
        """Give what each lag owes to a change by each direction, and the largest answer seen on the way."""
        return self._stream(directions) if self.streams else self._end(directions)

    def _stream(self, directions: Directions) -> tuple[Answers, float]:
        found, largest = [], 0.0
        for part in directions.split(self.batch_size):
            values = self.baseline.repeat(len(part), 1, 1)
            if self.probe == "impulse":
                values[:, self.lead] += part
            else:
                values[:, self.lead :] += part[:, None]
            answers = _answer(self.model, values)[:, self.lead :].double()
            largest = max(largest, float(answers.abs().max()))
            change = answers - self.silence
            found.append(change if self.probe == "impulse" else _difference(change))
        return torch.cat(found).cpu().numpy(), largest

    def _end(self, directions: Directions) -> tuple[Answers, float]:
        lags = torch.from_numpy(self.lags)
        neighbor = {"heaviside": lags - 1, "impulse": None, "reversed": lags + 1}[self.probe]
        wanted = lags if neighbor is None else torch.unique(torch.cat([lags, neighbor]))
        before_end = torch.arange(self.lead + self.horizon, -1, -1)
        shapes = {
            "heaviside": before_end <= wanted[:, None],
            "impulse": before_end == wanted[:, None],
            "reversed": before_end >= wanted[:, None],
        }
        shape = shapes[self.probe].to(directions)
        found, largest = [], 0.0
        for direction in directions:
            answers = []
            for part in shape.split(self.batch_size):
                answer = _answer(self.model, self.baseline + part[:, :, None] * direction).double()
                answers.append(answer[:, -1] if self.at_every_step else answer)
            change = torch.cat(answers)
            largest = max(largest, float(change.abs().max()))
            change = change - self.silence[-1]
            if neighbor is not None:
                change = change[torch.searchsorted(wanted, lags)] - change[torch.searchsorted(wanted, neighbor)]
            found.append(change)
        return torch.stack(found).cpu().numpy(), largest


def _is_causal(model: nn.Module, silent: Tensor, answer: Tensor, rounding: float) -> bool:
    """Say whether a change of the last step touches earlier answers beyond rounding, on the scale of all answers."""
    late = silent.clone()
    late[:, -1] += 1.0
    changed = _answer(model, late)
    touched = (changed - answer)[:, :-1].abs().max()
    return bool(touched <= rounding * torch.maximum(answer.abs().max(), changed.abs().max()))


def _difference(change: Float[Tensor, "direction time out"]) -> Float[Tensor, "direction time out"]:
    return torch.diff(change, dim=1, prepend=torch.zeros_like(change[:, :1]))


def _answer(model: nn.Module, values: Float[Tensor, "batch time channel"]) -> Float[Tensor, "batch ..."]:
    lengths = None
    if takes_lengths(model):
        lengths = torch.full((len(values),), values.shape[1], dtype=torch.long, device=values.device)
    found = call_model(model, values, lengths)
    require(
        bool(found.isfinite().all()),
        "expected finite answers to the probes of memory, silence and sudden steps",
        "got NaN or infinity",
    )
    return found
