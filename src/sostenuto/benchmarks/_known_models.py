"""Models whose truth is known by their making, with data, and what no verdict may say of them."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sostenuto.benchmarks._audited_models import (
    Answering,
    Attention,
    Carrying,
    Choosing,
    Constant,
    Convolution,
    Diagonal,
    Drifting,
    Filter,
    Mean,
    Minimal,
    Noisy,
    Normalized,
    Pooled,
    Recurrent,
    Signed,
    SignWeights,
    Stepped,
    Tilted,
    Tokens,
    Weighted,
)

COUNT, STEPS, LONG_STEPS = 96, 24, 128

Labels = dict[str, tuple[str, ...]]


class Known(NamedTuple):
    """A model with its data (without targets, memory and stability alone are asked about), and what is false of it.

    ``never`` holds the labels that would be false for each check, ``laws`` the laws of memory that would be right
    (empty: any), ``ahead`` whether it looks ahead, ``train`` whether the test part is passed as the training part too,
    and ``given`` other arguments of the audit.
    """

    make: Callable[[], tuple[Any, Tensor, Any]]
    never: Labels
    laws: tuple[str, ...] = ()
    ahead: bool | None = None
    train: bool = False
    given: Mapping[str, Any] = MappingProxyType({})


def signals(seed: int = 0, channels: int = 1) -> Tensor:
    """Draw sequences of standard normal numbers."""
    return torch.randn(COUNT, STEPS, channels, generator=torch.Generator().manual_seed(seed))


def fitted(model: nn.Module, x: Tensor, y: Tensor, steps: int = 60, lengths: Tensor | None = None) -> nn.Module:
    """Train a little, by Adam; classes may be told of each sequence or of every step."""
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        answers = model(x) if lengths is None else model(x, lengths)
        if y.is_floating_point():
            loss = nn.functional.mse_loss(answers[:, 0], y)
        else:
            loss = nn.functional.cross_entropy(answers.movedim(-1, 1), y)
        loss.backward()
        optimizer.step()
    return model


def _weighted(weights: Tensor, **options: Any) -> tuple[nn.Module, Tensor, Tensor]:
    """Label sequences far from the boundary by the model itself."""
    x = signals()
    lead = (x[:, :, 0] * weights).sum(1)
    x[:, :, 0] += 0.5 * lead.sign()[:, None] * weights.sign()
    return Weighted(weights, **options), x, (lead > 0).long()


def _trained(model: nn.Module, *, numbers: bool = False) -> tuple[nn.Module, Tensor, Tensor]:
    x = signals()
    level = x[:, :, 0].mean(1)
    y = level if numbers else (level > 0).long()
    return fitted(model, x, y), x, y


def _guessing(model: nn.Module) -> tuple[nn.Module, Tensor, Tensor]:
    """Draw classes that have nothing to do with the sequences."""
    return model, signals(), torch.randint(0, 2, (COUNT,), generator=torch.Generator().manual_seed(9))


def _sorted(model_of: tuple[nn.Module, Tensor, Tensor]) -> tuple[nn.Module, Tensor, Tensor]:
    model, x, y = model_of
    order = y.argsort(stable=True)
    return model, x[order], y[order]


def _chaotic(gain: float) -> tuple[nn.Module, Tensor, Tensor]:
    layer = nn.RNN(1, 32, batch_first=True)
    with torch.no_grad():
        torch.nn.init.normal_(layer.get_parameter("weight_hh_l0"), std=gain / 32**0.5)
    model, x = Recurrent(layer), 0.1 * signals()
    with torch.no_grad():
        return model, x, model(x).argmax(1)


def _noisy() -> tuple[nn.Module, Tensor, Tensor]:
    _, x, y = _weighted(EVEN)
    return Noisy(EVEN), x, y


def _thin(distance: float, turn: Callable[[Tensor], Tensor] | None = None) -> tuple[nn.Module, Tensor, Tensor]:
    """Put all sequences at one distance from the boundary, in every sample."""
    x = signals()
    lead = (x[:, :, 0] * EVEN).sum(1)
    x[:, :, 0] -= (lead - distance * lead.sign() * EVEN.sum())[:, None] * EVEN
    return Weighted(EVEN, turn=turn), x, (lead > 0).long()


def _scales() -> tuple[nn.Module, Tensor, Tensor]:
    """One channel of deviation .01 decides, beside one of 1000 that does not."""
    model, x, y = _thin(0.002)
    x = 10 * x
    return model, torch.cat([0.01 * x, 1000 * signals(1)], 2), y


def _lucky() -> tuple[nn.Module, Tensor, Tensor]:
    model, x = Weighted(EVEN, gain=1e-3), signals()
    return model, x, ((x[:, :, 0] * EVEN).sum(1) > 0).long()


def _few() -> tuple[nn.Module, Tensor, Tensor]:
    model, x, y = _weighted(EVEN)
    return model, x[:8], y[:8]


def _memory(weights: Tensor, way: str = "matrix") -> tuple[nn.Module, Tensor, None]:
    """Filter long sequences; nothing but memory is asked about."""
    return Filter(weights, way), _long(), None


def _long(seed: int = 5) -> Tensor:
    return torch.randn(COUNT, LONG_STEPS, 1, generator=torch.Generator().manual_seed(seed))


def _lags() -> Tensor:
    return torch.arange(LONG_STEPS * 1.0)


def _told(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor, Tensor]:
    """Let the model's own decisions be the classes, so that skill is beyond doubt."""
    with torch.no_grad():
        return model, x, model(x).argmax(1)


def _labeled(model: nn.Module, x: Tensor, lead: Tensor) -> tuple[nn.Module, Tensor, Tensor]:
    return model, x, (lead > lead.median()).long()


def _lorenz(step: float) -> Callable[[Tensor, Tensor], Tensor]:
    """One step of Lorenz's equations by Heun's method: the largest exponent is 0.906 per unit of time."""

    def field(h: Tensor) -> Tensor:
        x, y, z = h.unbind(-1)
        return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)

    def move(h: Tensor, x: Tensor) -> Tensor:
        slope = field(h)
        return h + step / 2 * (slope + field(h + step * slope)) + 0.01 * step * x

    return move


def _map(
    move: Callable[[Tensor, Tensor], Tensor], first: list[float], steps: int = LONG_STEPS, scale: float = 1.0
) -> tuple[nn.Module, Tensor, Tensor]:
    model, x = Recurrent(Stepped(move, torch.tensor(first))), scale * _long()[:, :steps]
    with torch.no_grad():
        answers = model(x)
        # Both classes are told as often, by leads that vary by about 1.
        lead = answers[:, 1] - answers[:, 0]
        size = 2 / float(lead.std())
        model.head.weight *= size
        middle = lead.median() - model.head.bias[1] + model.head.bias[0]
        model.head.bias.copy_(torch.stack([torch.tensor(0.0), -size * middle]))
        return _told(model, x)


def _turned(h: Tensor, angle: float, size: float = 1.0) -> Tensor:
    cos, sin = math.cos(angle), math.sin(angle)
    return size * torch.stack([cos * h[..., 0] - sin * h[..., 1], sin * h[..., 0] + cos * h[..., 1]], -1)


def _hashed(x: Tensor) -> Tensor:
    """Add noise that is drawn anew for every input, and always the same for one."""
    digest = (x.detach().double() * 1e6).round().flatten(1)
    turns = torch.sin(digest * torch.linspace(1.0, 2.0, digest.shape[1], dtype=torch.float64)).sum(1)
    noise = torch.frac(turns * 43758.5453) - 0.5
    return x + 0.002 * noise.to(x)[:, None, None]


def _backwards(x: Tensor) -> Tensor:
    """Leave values as they are and turn their gradient around."""
    return 2 * x.detach() - x


def _undefined(x: Tensor) -> Tensor:
    """Leave values as they are and make their gradient no number."""
    return x + torch.sqrt(torch.relu(x.abs().amax() * 0 * x))


def _wide() -> tuple[nn.Module, Tensor, Tensor]:
    """Thin margins in many channels, behind gradients that point the wrong way."""
    x = signals(0, 8)
    lead = x.sum((1, 2))
    x = x - ((lead - 0.004 * lead.sign() * STEPS * 8) / (STEPS * 8))[:, None, None]
    model = Pooled(lambda x: _backwards(x).sum((1, 2)))
    return model, x, (lead > 0).long()


def _repeated() -> tuple[nn.Module, Tensor, Tensor]:
    """Four sequences, many times each, and classes that suit the model by luck."""
    x = signals()[:4].repeat(24, 1, 1)
    return _told(Weighted(EVEN), x)


def _signed() -> tuple[nn.Module, Tensor, Tensor]:
    """Train what has a gradient until it has none: the read-out alone."""
    model, x = Signed(STEPS), signals()
    lead = x[:, :, 0].mean(1)
    y = (lead + 0.05 * torch.randn(COUNT, generator=torch.Generator().manual_seed(3)) > 0).long()
    fitted(model, x, y, steps=20)
    optimizer = torch.optim.LBFGS(model.head.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y) + 1e-3 * model.head.weight.square().sum()
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    return model, x, y


def _small_signs() -> tuple[nn.Module, Tensor, Tensor]:
    weights = torch.cat([torch.ones(STEPS // 2), torch.full((STEPS // 2,), 1e-4)])
    model, x = SignWeights(weights), signals()
    return model, x, (x.sum((1, 2)) > 0).long()


def _two_wrongs() -> tuple[nn.Module, Tensor, Tensor]:
    """Say 83 % for both classes, where one is always right and the other in two thirds."""
    x = torch.cat([signals(seed) for seed in range(4)])
    y = (x.sum((1, 2)) > 0).long()
    wrong = torch.rand(len(y), generator=torch.Generator().manual_seed(2)) < 1 / 3
    y = torch.where((y == 1) & wrong, 0, y)
    gain = math.log(5.0)
    return Tilted(STEPS, gain, gain), x, y


def _one_in_ten() -> tuple[nn.Module, Tensor, Tensor]:
    """Let the state last where a sequence begins with a large number, and be lost at once elsewhere."""

    def move(h: Tensor, x: Tensor) -> Tensor:
        marked = (h[:, 1:] != 0) | (x > 3)
        kept = torch.where(marked, 1.0, 0.3)
        return torch.cat([kept * h[:, :1] + x * (x < 3), torch.where(marked, 1.0, 0.0)], 1)

    x = _long()
    x[:, 0] = torch.where(torch.arange(COUNT)[:, None] % 10 == 0, 4.0, 0.0)
    model = Recurrent(Stepped(move, torch.zeros(2)))
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
        model.head.bias.zero_()
    return _told(model, x)


def _tokens(*, attention: bool) -> tuple[nn.Module, Tensor, Tensor]:
    ids = torch.randint(0, 12, (COUNT, STEPS), generator=torch.Generator().manual_seed(4))
    y = ((ids > 5).sum(1) > STEPS // 2).long()
    return fitted(Tokens(attention=attention), ids, y), ids, y


def _answering(form: str) -> tuple[nn.Module, Tensor, Tensor]:
    model, x, y = _weighted(EVEN)
    return Answering(model, form), x, y


def _guess_number(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = Recurrent(nn.GRU(1, 4, batch_first=True))
    return model, signals(seed), torch.randint(0, 2, (COUNT,), generator=torch.Generator().manual_seed(seed + 50))


GREEN_OF_GUESSERS = {
    "skill": ("Better than guessing",),
    "attack": ("Steady",),
    "noise": ("Steady",),
    "perturbation": ("Robust weights",),
    "curvature": ("A minimum",),
    "calibration": ("Honest confidence",),
    "gradients": ("Gradients live",),
    "lyapunov": ("Settles", "Neutral"),
}
LONG, SHORT = ("Long memory", "Remembers throughout"), ("Short memory", "Forgets at once")
LASTS, FADES, NONE = {"memory": SHORT}, {"memory": LONG}, {"memory": LONG + SHORT}
UNSTABLE, TURNING, FALLING = (
    {"lyapunov": ("Settles", "Neutral")},
    {"lyapunov": ("Settles", "Sensitive")},
    {"lyapunov": ("Sensitive", "Neutral")},
)
GROWS = {"lyapunov": ("Settles", "Neutral"), "memory": LONG + SHORT}
SKILLED = {"skill": ("No better than guessing",)}
UNSTEADY = {"attack": ("Steady",), **SKILLED}
MASKED = {"attack": ("Steady", "Wavers"), **SKILLED}
EVEN, LAST = torch.ones(STEPS) / STEPS**0.5, torch.eye(STEPS)[-1]
NOTHING: Labels = {"any": ("good",)}
"""No verdict at all may be good."""


def _decay(rate: float) -> Tensor:
    weights = rate ** torch.arange(STEPS - 1.0, -1.0, -1.0)
    return weights / weights.norm()


KNOWN: dict[str, Known] = {
    "constant": Known(lambda: _guessing(Constant(1.0)), GREEN_OF_GUESSERS),
    "constant, even scores": Known(lambda: _guessing(Constant(0.0)), GREEN_OF_GUESSERS),
    "constant, sure": Known(lambda: _guessing(Constant(30.0)), GREEN_OF_GUESSERS),
    "random LSTM": Known(lambda: _guessing(Recurrent(nn.LSTM(1, 8, batch_first=True))), GREEN_OF_GUESSERS),
    "random GRU": Known(lambda: _guessing(Recurrent(nn.GRU(1, 8, batch_first=True))), GREEN_OF_GUESSERS),
    "random Transformer": Known(lambda: _guessing(Attention(first=False)), GREEN_OF_GUESSERS),
    "linear on noise labels": Known(lambda: _guessing(Weighted(EVEN)), GREEN_OF_GUESSERS),
    "random numbers": Known(lambda: (Mean(1.0), signals(), torch.randn(COUNT)), GREEN_OF_GUESSERS),
    "constant number": Known(lambda: (Mean(0.0), signals(), torch.randn(COUNT)), GREEN_OF_GUESSERS),
    "linear, even": Known(lambda: _weighted(EVEN), SKILLED),
    "linear, last step": Known(lambda: _weighted(LAST), SKILLED),
    "linear, first step": Known(lambda: _weighted(LAST.flip(0)), SKILLED),
    "linear, decay .5": Known(lambda: _weighted(_decay(0.5)), SKILLED),
    "linear, decay .9": Known(lambda: _weighted(_decay(0.9)), SKILLED),
    "linear, small gain": Known(
        lambda: _weighted(EVEN, gain=0.01), {"calibration": ("Honest confidence", "Overconfident"), **SKILLED}
    ),
    "linear, huge gain": Known(lambda: _weighted(EVEN, gain=1e4), SKILLED),
    "sorted classes": Known(lambda: _sorted(_weighted(EVEN)), SKILLED),
    "sorted GRU": Known(lambda: _sorted(_trained(Recurrent(nn.GRU(1, 8, batch_first=True)))), SKILLED),
    "masked by rounding": Known(lambda: _weighted(EVEN, turn=lambda x: (2 * x).round() / 2), MASKED),
    "masked by signs": Known(lambda: _weighted(EVEN, turn=lambda x: x.sign()), MASKED),
    "masked by a stop": Known(lambda: _weighted(EVEN, turn=lambda x: x.detach()), MASKED),
    "masked by ripples": Known(lambda: _thin(0.05, lambda x: x + 0.01 * torch.sin(1000 * x)), UNSTEADY),
    "masked by fine rounding": Known(lambda: _thin(0.05, lambda x: (20 * x).round() / 20), UNSTEADY),
    "masked by noise": Known(lambda: _noisy(), UNSTEADY),
    "thin margin": Known(lambda: _thin(0.002), UNSTEADY),
    "two scales": Known(lambda: _scales(), UNSTEADY),
    "chaotic RNN": Known(lambda: _chaotic(3.0), UNSTABLE),
    "contracting RNN": Known(lambda: _chaotic(0.3), {"lyapunov": ("Sensitive",), "certificates": ("Contradicted",)}),
    "exploding RNN": Known(lambda: _chaotic(8.0), {"lyapunov": ("Settles", "Neutral"), "curvature": ("A minimum",)}),
    "untrained but lucky labels": Known(lambda: _lucky(), {"curvature": ("A minimum",)}),
    "overfitted": Known(lambda: _trained(Recurrent(nn.LSTM(1, 16, batch_first=True))), SKILLED),
    "trained LSTM": Known(lambda: _trained(Recurrent(nn.LSTM(1, 8, batch_first=True))), SKILLED),
    "trained GRU": Known(lambda: _trained(Recurrent(nn.GRU(1, 8, batch_first=True))), SKILLED),
    "trained RNN": Known(lambda: _trained(Recurrent(nn.RNN(1, 8, batch_first=True))), SKILLED),
    "Transformer": Known(lambda: _trained(Attention(first=False)), {"attack": ("Masked",), **SKILLED}),
    "BERT-like": Known(lambda: _trained(Attention(first=True)), SKILLED),
    "TCN": Known(lambda: _trained(Convolution()), SKILLED),
    "minGRU": Known(lambda: _trained(Minimal()), SKILLED),
    "regression": Known(lambda: _trained(Mean(0.5), numbers=True), SKILLED),
    "regression, GRU": Known(lambda: _trained(Recurrent(nn.GRU(1, 8, batch_first=True), 1), numbers=True), SKILLED),
    "too few": Known(lambda: _few(), GREEN_OF_GUESSERS),
    "one class": Known(lambda: (Weighted(EVEN), signals(), torch.zeros(COUNT, dtype=torch.long)), GREEN_OF_GUESSERS),
    # what is remembered
    "FIR of 10": Known(lambda: _memory(torch.linspace(1.0, 0.1, 10)), FADES, ("finite",)),
    "moving average of 20": Known(lambda: _memory(torch.ones(20) / 20), FADES, ("finite",)),
    "moving average of 110": Known(lambda: _memory(torch.ones(110) / 110), LASTS, ("finite", "non-decaying")),
    "delay of 10": Known(lambda: _memory(torch.eye(11)[10]), FADES, ("finite",)),
    "delay of 80": Known(lambda: _memory(torch.eye(81)[80]), LASTS, ("finite",)),
    "last step alone": Known(lambda: _memory(torch.ones(1)), FADES, ("finite",)),
    "sum": Known(lambda: _memory(torch.ones(LONG_STEPS)), LASTS, ("non-decaying",)),
    "decay .5": Known(lambda: _memory(0.5 ** _lags()), FADES, ("exponential",)),
    "decay .9": Known(lambda: _memory(0.9 ** _lags()), FADES, ("exponential",)),
    "decay .999": Known(lambda: _memory(0.999 ** _lags()), LASTS, ("exponential", "non-decaying")),
    "decay .5 and a floor": Known(lambda: _memory(0.5 ** _lags() + 1e-3), FADES, ("exponential", "non-decaying")),
    "two decays": Known(lambda: _memory(0.5 ** _lags() + 0.2 * 0.9 ** _lags()), FADES, ("exponential",)),
    "turning decay": Known(lambda: _memory(0.9 ** _lags() * torch.cos(0.5 * _lags())), FADES, ("exponential",)),
    "power 1.5": Known(lambda: _memory((1 + _lags()) ** -1.5), FADES, ("polynomial",)),
    "J0": Known(lambda: _memory(torch.special.bessel_j0(0.5 * _lags())), {}, ("polynomial",)),
    "cos/(1+t)": Known(lambda: _memory(torch.cos(0.3 * _lags()) / (1 + _lags())), FADES, ("polynomial",)),
    "exp(-sqrt t)": Known(lambda: _memory(torch.exp(-_lags().sqrt())), FADES, ("stretched",)),
    "wave": Known(lambda: _memory(torch.cos(2 * math.pi * _lags() / 16)), LASTS, ("periodic", "non-decaying")),
    "causal by FFT": Known(lambda: _memory(0.8 ** _lags(), "padded"), FADES, ("exponential",), ahead=False),
    "acausal by FFT": Known(lambda: _memory(0.8 ** _lags(), "around"), {}, ahead=True),
    "both directions": Known(lambda: (Filter(EVEN, "around"), signals(), None), {}, ahead=True),
    "scores drift together": Known(lambda: (Drifting(), _long(), None), FADES),
    "counts": Known(lambda: (Pooled(lambda x: (x > 0).float().mean((1, 2))), _long(), None), LASTS),
    "largest": Known(lambda: (Pooled(lambda x: x.amax((1, 2))), _long(), None), {"memory": SHORT}),
    "parity of a count": Known(
        lambda: (Pooled(lambda x: ((x > 1).float().sum((1, 2)) % 2) - 0.5), _long(), None), LASTS
    ),
    "wave of the sum": Known(lambda: (Pooled(lambda x: torch.sin(x.sum((1, 2)))), _long(), None), LASTS),
    "first step": Known(lambda: (Pooled(lambda x: x[:, 0, 0]), _long(), None), LASTS),
    "barely answers": Known(lambda: (Pooled(lambda x: 1e-7 * x[:, -1, 0]), _long(), None), FADES),
    "length alone": Known(lambda: (Pooled(lambda x: 0 * x[:, 0, 0] + x.shape[1]), _long(), None), NONE),
    "constant, memory": Known(lambda: (Constant(1.0), _long(), None), NONE),
    "noise alone": Known(lambda: (Noisy(torch.zeros(LONG_STEPS)), _long(), None), NONE),
    "dropout left on": Known(lambda: (Pooled(lambda x: torch.dropout(x, 0.5, True)[:, -1, 0]), _long(), None), FADES),
    "noise in the state": Known(
        lambda: _map(lambda h, x: 0.5 * h + x + 0.5 * torch.randn_like(h), [0.0, 0.0]), {**FADES, **SKILLED}
    ),
    # what grows
    "Lorenz, steps of .02": Known(lambda: _map(_lorenz(0.02), [1.0, 1.0, 20.0]), GROWS),
    "Lorenz, steps of .01": Known(lambda: _map(_lorenz(0.01), [1.0, 1.0, 20.0]), GROWS),
    "Lorenz, steps of .001": Known(lambda: _map(_lorenz(0.001), [1.0, 1.0, 20.0]), UNSTABLE),
    "Lorenz, few steps": Known(lambda: _map(_lorenz(0.01), [1.0, 1.0, 20.0], 24), UNSTABLE),
    "Lorenz, from its saddle": Known(lambda: _map(_lorenz(0.01), [1e-3, 0.0, 0.0]), UNSTABLE),
    "logistic map, 3.6": Known(lambda: _map(lambda h, x: 3.6 * h * (1 - h) + 1e-6 * x, [0.3, 0.4]), GROWS),
    "Henon map": Known(
        lambda: _map(
            lambda h, x: torch.stack([1 - 1.4 * h[:, 0] ** 2 + h[:, 1] + 1e-4 * x[:, 0], 0.3 * h[:, 0]], 1), [0.1, 0.1]
        ),
        GROWS,
    ),
    "grows by .0005": Known(lambda: _map(lambda h, x: 1.0005 * h + 0.01 * x, [0.1, 0.2]), {"lyapunov": ("Settles",)}),
    "grows late": Known(
        lambda: _map(
            lambda h, x: torch.cat([h[:, :1] + 1, torch.where(h[:, :1] < 100, 0.8, 1.5) * h[:, 1:] + 0.1 * x], 1),
            [0.0, 0.0],
        ),
        UNSTABLE,
    ),
    "turns": Known(lambda: _map(lambda h, x: _turned(h, 0.3) + 0.1 * x, [1.0, 0.0]), TURNING),
    "turns inward": Known(lambda: _map(lambda h, x: _turned(h, 0.3, 0.95) + x, [1.0, 0.0]), FALLING),
    "shrinks after growing": Known(
        lambda: _map(lambda h, x: torch.stack([0.9 * h[:, 0] + 30 * h[:, 1], 0.9 * h[:, 1] + x[:, 0]], 1), [0.0, 0.0]),
        FALLING,
    ),
    # what is fooled
    "masked by hashed noise": Known(lambda: _thin(0.002, _hashed), UNSTEADY),
    "masked by a false sign": Known(lambda: _thin(0.02, _backwards), UNSTEADY),
    "masked by a false sign, wide": Known(lambda: _wide(), UNSTEADY),
    "masked by no number": Known(lambda: _thin(0.02, _undefined), UNSTEADY),
    "masked by saturation": Known(
        lambda: _labeled(
            Pooled(lambda x: torch.tanh(1e5 * x.mean((1, 2)))), _thin(0.02)[1], _thin(0.02)[1].mean((1, 2))
        ),
        UNSTEADY,
    ),
    "clipped input": Known(lambda: _thin(0.01, lambda x: x.clamp(-2.5, 2.5)), UNSTEADY),
    "chosen by chance": Known(lambda: (Choosing(Weighted(EVEN), _thin(0.002)[0]), *_thin(0.002)[1:]), UNSTEADY),
    # what is not a judge of one sequence
    "statistics of the batch": Known(lambda: (Normalized(Weighted(EVEN)), *_weighted(EVEN)[1:]), NOTHING),
    "state kept between calls": Known(lambda: (Carrying(Weighted(EVEN)), *_weighted(EVEN)[1:]), NOTHING),
    "four sequences again and again": Known(lambda: _repeated(), NOTHING),
    "tested on its training part": Known(
        lambda: _trained(Recurrent(nn.GRU(1, 8, batch_first=True))), {"generalization": ("Carries over",)}, train=True
    ),
    **{f"guesser {seed}": Known(lambda seed=seed: _guess_number(seed), NOTHING) for seed in range(8)},
    # what its weights and its confidence hide
    "units of signs": Known(lambda: _signed(), {"curvature": ("A minimum",)}),
    "signs of weights": Known(lambda: _small_signs(), {"perturbation": ("Robust weights",), **SKILLED}),
    "two wrongs": Known(lambda: _two_wrongs(), {"calibration": ("Honest confidence",), **SKILLED}),
    "gradients live in one of ten": Known(lambda: _one_in_ten(), {"gradients": ("Gradients live",)}),
    # other forms of models and answers
    "S4D": Known(lambda: _trained(Diagonal()), SKILLED),
    "tokens, GRU": Known(lambda: _tokens(attention=False), SKILLED),
    "tokens, BERT-like": Known(lambda: _tokens(attention=True), SKILLED),
    "one logit": Known(lambda: _answering("logit"), SKILLED),
    "probabilities": Known(lambda: _answering("probabilities"), SKILLED),
    "dict of logits": Known(lambda: _answering("dict"), SKILLED),
}
