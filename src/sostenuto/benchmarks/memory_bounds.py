"""How close memory certificates are to the worst that inputs can do, and whether any input breaks one.

2000 random layers of each kind, in float64, each given inputs of its own: random ones, and an adversary's, who looks at
both states and chooses step by step the input whose slopes shrink (or stretch) their difference most in the
certificate's norm. The layer itself is run. A bound is broken where a difference is smaller (larger) than it says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from sostenuto.nn import (
    RNN,
    AntisymmetricRNN,
    CoRNN,
    DampedOscillators,
    IndRNN,
    LipschitzRNN,
    ResidualRNN,
    StableRNN,
    UnICORNN,
)
from sostenuto.nn.certificates import MemoryCertificate
from sostenuto.nn.certificates.system import SectorSystem, sector_system
from sostenuto.nn.certificates.two_sided import fastest, slowest
from sostenuto.nn.oscillator_memory import cell_growth

TITLE = "memory certificates of random layers against random inputs and an adversary"
COUNT = 2000
_STEPS = {"oscillators": 100, "damped": 50, "diagonal": 20, "dense": 30}
_SATURATED, _SMALL = 50.0, 1e-5


@dataclass(frozen=True, eq=False)
class Claim:
    """A side: the difference's size in √(δᵀPδ) changes by at least (at most) e^{−rate} a step, from ``start``."""

    rate: float
    metric: np.ndarray
    start: np.ndarray


def run(progress: bool = True, count: int = COUNT, seed: int = 0) -> dict[str, Any]:
    """Return, for each kind of layer, how many bounds are proved and broken and how near the adversary comes."""
    bar = tqdm(total=count * len(KINDS), desc="memory bounds", unit="layer", disable=not progress)
    record: dict[str, Any] = {"count": count, "seed": seed}
    with bar:
        for kind in KINDS:
            rows = []
            for index in range(count):
                rows.append(judge(kind, index, seed))
                bar.update()
            record[kind] = summarize(rows)
    return record


@torch.no_grad()
def judge(kind: str, index: int, seed: int = 0) -> dict[str, float]:
    """Attack both sides of one layer; give the share of its bound that the adversary reaches, and what is broken."""
    draw = np.random.default_rng((seed, index))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(draw.integers(2**31)))
        layer = KINDS[kind](draw).double()
        certificate = layer.memory_certificate()
        row = {"broken": float(_random_inputs_break(layer, certificate))}
        for side, sign in (("remembers", -1.0), ("forgets", 1.0)):
            claim = _claim(layer, certificate, side)
            if claim is None:
                continue
            rate, worst = _attacked(layer, claim, sign, _STEPS[kind])
            row[side] = rate / claim.rate if side == "remembers" else claim.rate / rate if rate > 0 else 1.0
            row["broken"] += float(worst > 1e-8)
    return row


def summarize(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Count, and take quartiles of the ratio of proved to worst found half-life (of the mirror, where it forgets)."""
    summary: dict[str, Any] = {"broken": int(sum(row["broken"] for row in rows))}
    for side in ("remembers", "forgets"):
        shares = [row[side] for row in rows if side in row]
        if shares:
            low, middle, high = np.quantile(shares, (0.25, 0.5, 0.75)).tolist()
            summary[side] = {"proved": len(shares), "lower_quartile": low, "median": middle, "upper_quartile": high}
    return summary


def _oscillators(draw: np.random.Generator) -> Any:
    size = int(draw.integers(1, 5))
    step, stiffness = float(draw.uniform(0.1, 0.9)), float(np.exp(draw.uniform(0, np.log(15))))
    layer: Any = UnICORNN(size, size, step_size=min(step, 1.5 / stiffness**0.5), stiffness=stiffness)
    layer.weight_hh_l0.copy_(torch.from_numpy(draw.uniform(-0.8, 2, size)))
    return _open(layer)


def _damped(draw: np.random.Generator) -> Any:
    size = int(draw.integers(1, 5))
    return _open(DampedOscillators(size, size, time_scales=(1.0, float(np.exp(draw.uniform(1, 7))))))


def _diagonal(draw: np.random.Generator) -> Any:
    size, activation = int(draw.integers(1, 5)), str(draw.choice(["tanh", "relu", "identity"]))
    if draw.integers(2):
        return _open(IndRNN(size, size, activation=activation if activation != "identity" else "tanh"))
    step = float(draw.uniform(0.02, 0.5))
    return _open(StableRNN(size, size, activation=activation, step_size=step))


def _dense(draw: np.random.Generator) -> Any:
    size, step, scale = int(draw.integers(2, 5)), float(draw.uniform(0.01, 0.1)), float(draw.uniform(0.3, 1.5))
    gamma, method = float(draw.uniform(0.5, 4)), str(draw.choice(["euler", "imex"]))
    makes: list[Callable[[], Any]] = [
        lambda: LipschitzRNN(size, size, step_size=step, gamma=gamma, integrator=method),
        lambda: CoRNN(size, size, step_size=step, gamma=gamma, epsilon=float(draw.uniform(0.5, 4))),
        lambda: AntisymmetricRNN(size, size, step_size=step, gamma=gamma / 10),
        lambda: ResidualRNN(size, size, step_size=step),
        lambda: RNN(size, size),
    ]
    layer = makes[int(draw.choice(5, p=[0.5, 0.2, 0.1, 0.1, 0.1]))]()
    for parameter in layer.parameters():
        parameter.mul_(scale)
    return _open(layer)


KINDS: dict[str, Callable[[np.random.Generator], Any]] = {
    "oscillators": _oscillators,
    "damped": _damped,
    "diagonal": _diagonal,
    "dense": _dense,
}


def _open(layer: Any) -> Any:
    """Let inputs be the drives themselves: V = I, b = 0."""
    layer.weight_ih_l0.copy_(torch.eye(layer.hidden_size))
    for name in ("bias_ih_l0", "bias_hh_l0"):
        if hasattr(layer, name):
            getattr(layer, name).zero_()
    return layer


def _claim(layer: Any, certificate: MemoryCertificate, side: str) -> Claim | None:
    """Return a side's rate in its own norm, and a difference to start from: the unit that it is about, or all."""
    if isinstance(layer, UnICORNN):
        if side == "forgets":
            return None
        growth = cell_growth(layer, 0, False)
        worst, size = int(np.argmax(growth.rate)), layer.hidden_size
        scale, shear = growth.scale, growth.shear
        corner, lean, eye = np.diag(scale**2 + shear**2), np.diag(-shear), np.eye(size)
        metric = np.block([[corner, lean], [lean, eye]])
        return Claim(float(growth.rate[worst]), metric, np.tile(eye[worst], 2))
    level = certificate.levels[0]
    rate = level.fastest if side == "remembers" else level.slowest
    if rate is None or rate <= 0:
        return None
    states = layer.hidden_size * len(layer.state_names)
    system = None if isinstance(layer, DampedOscillators) else _system(layer)
    if system is None or _is_diagonal(system):
        units = np.ones(layer.hidden_size) if system is None else _slowest_or_fastest(system, side)
        if system is None:
            decay = layer.decay().numpy()
            units = (decay == (decay.max() if side == "remembers" else decay.min())).astype(float)
        return Claim(rate, np.eye(states), np.tile(units, len(layer.state_names)))
    proof = fastest(system) if side == "remembers" else slowest(system)
    return None if proof is None or proof.metric is None else Claim(proof.rate, proof.metric, np.ones(states))


def _slowest_or_fastest(system: SectorSystem, side: str) -> np.ndarray:
    ends = np.abs([np.diag(system.at(np.full(len(system.linear), k))) for k in (0.0, system.slope)])
    extreme = ends.min(0) == ends.min() if side == "remembers" else ends.max(0) == ends.max()
    return extreme.astype(float)


def _is_diagonal(system: SectorSystem) -> bool:
    return all(part.shape[0] == part.shape[1] and not (part - np.diag(np.diag(part))).any() for part in _parts(system))


def _parts(system: SectorSystem) -> tuple[np.ndarray, ...]:
    return system.linear, system.input, system.output


def _system(layer: Any) -> SectorSystem:
    kind = type(layer)
    if kind is UnICORNN:
        step, weight = layer.effective_step().numpy(), layer.weight_hh_l0.numpy()
        one, h, pull = np.eye(len(step)), np.diag(step), np.diag(step * layer.stiffness)
        linear = np.block([[one - h @ pull, h], [-pull, one]])
        output = np.concatenate([np.diag(weight), np.zeros_like(h)], 1)
        return SectorSystem(linear, np.concatenate([-h @ h, -h]), output, 1.0)
    if kind in (IndRNN, RNN):
        weight, eye = layer.weight_hh_l0, torch.eye(layer.hidden_size, dtype=torch.float64)
        activation = layer.activation if kind is IndRNN else "tanh"
        return sector_system(0 * eye, torch.diag(weight) if weight.ndim == 1 else weight, eye, activation)
    linear, weight, gain = layer.discrete_map().full()
    return sector_system(linear, weight, gain, layer.activation)


def _attacked(layer: Any, claim: Claim, sign: float, steps: int) -> tuple[float, float]:
    """Run two states under inputs that shrink (sign −1) or stretch their difference.

    Returns the mean rate, and by how much the worst step goes beyond the claim.
    """
    system = None if isinstance(layer, DampedOscillators) else _system(layer)
    names, size = len(layer.state_names), layer.hidden_size
    state = torch.zeros(names, 1, 2, size, dtype=torch.float64)
    state[:, 0, 1] = torch.from_numpy(_SMALL * claim.start.reshape(names, size))
    first = last = _size(claim.metric, _SMALL * claim.start)
    worst, taken = -np.inf, 0
    while taken < steps and last > 1e-3 * first:
        now = state[:, 0].permute(1, 0, 2).reshape(2, -1).numpy()
        drive = np.zeros(size) if system is None else _input(layer, system, claim.metric, now, sign)
        both = torch.from_numpy(drive).expand(1, 2, size)
        end: Any = layer(both, tuple(state) if names > 1 else state[0])[1]
        state = torch.stack(list(end)) if names > 1 else end[None]
        before, last = last, _size(claim.metric, (state[:, 0, 1] - state[:, 0, 0]).numpy().reshape(-1))
        rounding = 1e-13 * (1 + float(state.abs().max())) / _SMALL / 1e-3
        worst = max(worst, sign * (np.log(max(last, 1e-300) / before) + claim.rate) - rounding)
        taken += 1
    return float(-np.log(max(last, 1e-300) / first) / taken), float(worst)


def _input(layer: Any, system: SectorSystem, metric: np.ndarray, now: np.ndarray, sign: float) -> np.ndarray:
    """Choose for each unit in turn whether its slope is open or closed, and give the drive that makes it so."""
    delta, units = now[1] - now[0], system.input.shape[1]
    slopes = np.zeros(units)
    for _ in range(2):
        for i in range(units):
            trials = []
            for k in (0.0, system.slope):
                slopes[i] = k
                trials.append(sign * _size(metric, system.at(slopes) @ delta))
            slopes[i] = (0.0, system.slope)[int(np.argmax(trials))]
    argument = system.output @ now.mean(0)
    if getattr(layer, "activation", "tanh") == "relu":
        return np.where(slopes > 0, 1.0, -1.0) - argument
    pushed = -_SATURATED * np.where(now.mean(0)[-units:] >= 0, 1.0, -1.0)
    if isinstance(layer, UnICORNN):
        pushed = -pushed  # the force acts against the drive
    return np.where(slopes > 0, 0.0, pushed) - argument


def _random_inputs_break(layer: Any, certificate: MemoryCertificate, steps: int = 20, pairs: int = 8) -> bool:
    """Look whether random states and inputs break a side in the Euclidean norm."""
    names, size = len(layer.state_names), layer.hidden_size
    sizes = torch.logspace(-2, 1, pairs, dtype=torch.float64)[:, None]
    x = sizes * torch.randn(steps, pairs, size, dtype=torch.float64)
    starts = torch.randn(2, names, 1, pairs, size, dtype=torch.float64)
    ends = []
    for start in starts:
        end: Any = layer(x, tuple(start) if names > 1 else start[0])[1]
        ends.append(torch.stack(list(end)) if names > 1 else end[None])
    left = _distance(ends[0], ends[1]) / _distance(starts[0], starts[1])
    low, high = certificate.curves([steps], euclidean=True)
    return bool((left < low[0] * (1 - 1e-8) - 1e-14).any() or (left > high[0] * (1 + 1e-8) + 1e-14).any())


def _distance(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).square().sum((0, 1, 3)).sqrt()


def _size(metric: np.ndarray, delta: np.ndarray) -> float:
    return float(np.sqrt(delta @ metric @ delta))
