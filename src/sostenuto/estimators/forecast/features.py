"""What a forecast reads at each step: recent values, seasonal means, oscillators' states and random units on them."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float

from sostenuto.estimators.oscillators.features import draw_bank
from sostenuto.ops.oscillator_bank import LANES, OscillatorBank, bank_outputs

GROUPS: dict[str, tuple[str, ...]] = {
    "lags": ("level", "lag", "known"),
    "differences": ("lag", "season", "slope state", "known"),
    "states": ("level", "lag", "season", "slope state", "state", "known"),
    "random": ("level", "lag", "season", "slope state", "state", "known", "random"),
}
"""Sets of features that a ridge regression reads, by name; `differences` do not change when a level is added."""
QUALITY = (0.3, 6.0)
_SEASONS_AVERAGED = 4
_MIXED = 4
"""Features that a random unit mixes."""
_GAIN = 0.7


@dataclass(frozen=True, eq=False)
class ForecastFeatures:
    """The map from a scaled series to features; row t reads steps up to t, and known future covariates after it.

    ``lags`` are in steps, ``seasons`` may be empty. Oscillators of the ``bank`` read slopes (two thirds) and values.
    Random units are tanh(features ``mix`` + ``offset``), features standardized by ``center`` and ``scale``.
    """

    horizon: int
    lags: tuple[int, ...]
    seasons: tuple[int, ...]
    targets: int
    bank: OscillatorBank
    mix: Float[np.ndarray, "mixed random"]
    offset: Float[np.ndarray, " random"]
    center: Float[np.ndarray, " mixed"]
    scale: Float[np.ndarray, " mixed"]

    def __call__(
        self,
        values: Float[np.ndarray, "time channel"],
        known: Float[np.ndarray, "later known"] | None = None,
        spans: Float[np.ndarray, " time"] | None = None,
    ) -> dict[str, Float[np.ndarray, "time feature"]]:
        """Give the features of every step by kind; ``values`` are the targets and then past covariates."""
        parts = self.linear(values, known, spans)
        standardized = (_mixed(parts) - self.center) / self.scale
        return parts | {"random": np.tanh(standardized @ self.mix + self.offset)}

    def linear(
        self, values: np.ndarray, known: np.ndarray | None, spans: np.ndarray | None
    ) -> dict[str, Float[np.ndarray, "time feature"]]:
        """Give all but the random units."""
        length = len(values)
        past = np.stack([delayed(values, lag) for lag in self.lags], 1)
        states = bank_outputs(
            torch.from_numpy(values).float(),
            torch.tensor([0, length]),
            self.bank,
            spans=None if spans is None else torch.from_numpy(spans),
        )
        reads_slopes = self.bank.order.repeat_interleave(LANES)[: self.bank.n_units].numpy() == 1
        own = values[:, : self.targets]
        seasonal = [seasonal_mean(own, season, self.horizon) - own[:, None] for season in self.seasons]
        ahead = [] if known is None else [known[h : length + h] for h in range(self.horizon + 1)]
        return {
            "level": values,
            "lag": (values[:, None] - past).reshape(length, -1),
            "season": _side_by_side(seasonal, length),
            "slope state": states.double().numpy()[:, reads_slopes],
            "state": states.double().numpy()[:, ~reads_slopes],
            "known": _side_by_side(ahead, length),
        }


def draw_features(
    series: list[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]],
    *,
    horizon: int,
    lags: tuple[int, ...],
    seasons: tuple[int, ...],
    targets: int,
    n_units: int,
    generator: np.random.Generator,
) -> ForecastFeatures:
    """Draw oscillators and random units for scaled series, each with its known covariates and spans."""
    values = series[0][0]
    length = min(max(len(each[0]) for each in series) / 2, max(200, 4 * max(lags)))
    bank = draw_bank(n_units, length, values.shape[1], QUALITY, generator)
    blocks = torch.arange(len(bank.kind))
    order = (blocks < -(-2 * len(blocks) // 3)).long()
    bank = replace(bank, kind=blocks % 2, order=order)
    empty = np.zeros(0)
    bare = ForecastFeatures(horizon, lags, seasons, targets, bank, np.zeros((0, 0)), empty, empty, empty)
    inputs = np.concatenate([_mixed(bare.linear(*each))[max(lags) :] for each in series])
    mix = np.zeros((inputs.shape[1], n_units))
    for unit in range(n_units):
        chosen = generator.permutation(len(mix))[:_MIXED]
        mix[chosen, unit] = _GAIN * generator.normal(size=len(chosen))
    scale = inputs.std(0)
    return replace(
        bare,
        mix=mix,
        offset=generator.normal(size=n_units),
        center=inputs.mean(0),
        scale=np.where(scale > 1e-9, scale, np.inf),
    )


def columns(parts: dict[str, np.ndarray], group: str) -> Bool[np.ndarray, " feature"]:
    """Say which of all features, side by side, belong to a group."""
    return np.concatenate([np.full(part.shape[1], kind in GROUPS[group]) for kind, part in parts.items()])


def delayed(values: Float[np.ndarray, "time channel"], lag: int) -> Float[np.ndarray, "time channel"]:
    """Give the values ``lag`` steps before; the first value where there is none.

    >>> delayed(np.array([[1.0], [2.0], [3.0]]), 1).ravel()
    array([1., 1., 2.])
    """
    return values[np.maximum(np.arange(len(values)) - lag, 0)]


def seasonal_mean(
    values: Float[np.ndarray, "time channel"], season: int, horizon: int
) -> Float[np.ndarray, "time ahead channel"]:
    """Average the values at the phase of each of the next steps, over up to 4 seasons; one season ahead at the most.

    It needs no clock: the phase is counted back from the step itself.
    """
    rows = np.arange(len(values))[:, None] + np.arange(1, min(horizon, season) + 1)
    total = np.zeros((*rows.shape, values.shape[1]))
    count = np.zeros((*rows.shape, 1))
    for past in range(1, _SEASONS_AVERAGED + 1):
        there = rows - past * season
        seen = (there >= 0)[..., None]
        total += np.where(seen, values[np.maximum(there, 0)], 0.0)
        count += seen
    return np.where(count > 0, total / np.maximum(count, 1), values[:, None])


def _mixed(parts: dict[str, np.ndarray]) -> np.ndarray:
    """Give what random units read: levels, differences and states."""
    return np.concatenate([parts[kind] for kind in ("level", "lag", "slope state", "state")], 1)


def _side_by_side(arrays: list[np.ndarray], length: int) -> np.ndarray:
    return np.concatenate([array.reshape(length, -1) for array in arrays], 1) if arrays else np.zeros((length, 0))
