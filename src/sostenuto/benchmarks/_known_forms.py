"""More models whose truth is known by their making: other architectures and forms of data, ways to deceive an audit."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import Tensor, nn

from sostenuto.benchmarks._audited_models import Filter, Mean, Pooled, Recurrent, Weighted
from sostenuto.benchmarks._known_models import (
    COUNT,
    EVEN,
    FADES,
    LASTS,
    LONG,
    LONG_STEPS,
    NONE,
    NOTHING,
    SKILLED,
    STEPS,
    UNSTEADY,
    Known,
    Labels,
    _long,
    _lorenz,
    _memory,
    _thin,
    _told,
    _trained,
    _weighted,
    fitted,
    signals,
)
from sostenuto.benchmarks._known_traps import CALIBRATED, Made, Wrapped, by_sign

LENGTHS = torch.randint(STEPS // 2, STEPS, (COUNT,), generator=torch.Generator().manual_seed(4))
PADDED = torch.arange(STEPS) >= LENGTHS[:, None]


class CausalAttention(nn.Module):
    """A Transformer's encoder that scores two classes at every step, with a causal mask or without."""

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.lift, self.body, self.head = nn.Linear(1, 8), nn.TransformerEncoder(block, 1), nn.Linear(8, 2)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes at every step."""
        mask = torch.full((x.shape[1],) * 2, -torch.inf, dtype=x.dtype).triu(1) if self.causal else None
        return self.head(self.body(self.lift(x), mask=mask))


class Belief(nn.Module):
    """The forward algorithm of two hidden states, without a weight: the probability of each at the end."""

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        evidence = torch.cat([-((x + 1) ** 2), -((x - 1) ** 2)], -1) / 2
        turn = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).to(x)
        belief = torch.full((len(x), 2), 0.5).to(x)
        for likelihood in evidence.unbind(1):
            belief = torch.softmax((belief @ turn).log() + likelihood, -1)
        return belief


class Selective(nn.Module):
    """A Mamba-like state space: step size, input and output maps depend on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.span, self.enter, self.leave = (
            nn.Linear(1, 8),
            nn.Linear(8, 8),
            nn.Linear(8, 4),
            nn.Linear(8, 4),
        )
        self.rates, self.head = nn.Parameter(torch.arange(1.0, 5.0).log().repeat(8, 1)), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        read = nn.functional.silu(self.lift(x))
        span, enter = nn.functional.softplus(self.span(read)), self.enter(read)
        state = torch.zeros(len(x), 8, 4).to(x)
        for step in range(x.shape[1]):
            kept = torch.exp(-span[:, step, :, None] * self.rates.exp())
            state = kept * state + (span[:, step] * read[:, step])[:, :, None] * enter[:, step, None, :]
        return self.head((state * self.leave(read[:, -1])[:, None, :]).sum(-1))


class UnitState(nn.Module):
    """A state that is turned, moved, and brought back to length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.enter, self.head = nn.Linear(8, 8, bias=False), nn.Linear(1, 8), nn.Linear(8, 2)
        nn.init.orthogonal_(self.turn.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        state = torch.full((len(x), 8), 8**-0.5).to(x)
        for part in x.unbind(1):
            state = nn.functional.normalize(self.turn(state) + self.enter(part), dim=-1)
        return self.head(state)


class Reservoir(nn.Module):
    """An echo state network: random weights that are not trained, below a read-out that is."""

    inner: Tensor
    enter: Tensor

    def __init__(self) -> None:
        super().__init__()
        inner = torch.randn(50, 50, generator=torch.Generator().manual_seed(0))
        self.register_buffer("inner", 0.9 * inner / torch.linalg.eigvals(inner).abs().max())
        self.register_buffer("enter", 0.3 * torch.randn(1, 50, generator=torch.Generator().manual_seed(1)))
        self.head = nn.Linear(50, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        state = torch.zeros(len(x), 50).to(x)
        for part in x.unbind(1):
            state = torch.tanh(state @ self.inner + part @ self.enter)
        return self.head(state)


class Average(nn.Module):
    """The mean probability of several models."""

    def __init__(self, *members: nn.Module) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return torch.stack([torch.softmax(member(x), -1) for member in self.members]).mean(0)


class AtLength(nn.Module):
    """A GRU that is read at the true end of each sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Score two classes."""
        return self.head(self.layer(x)[0][torch.arange(len(x)), lengths - 1])


class Told(nn.Module):
    """Two scores ±g of what a function of the batch and the lengths gives."""

    def __init__(self, answer: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.gain, self.answer = nn.Parameter(torch.tensor(2.0)), answer

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Score two classes."""
        lead = self.gain * self.answer(x, lengths)[:, None] + 0 * x[:, 0]
        return torch.cat([-lead, lead], 1)


class Beside(nn.Module):
    """A GRU that is asked, and of which the answer takes a share, or nothing; ``rest`` gives the remainder."""

    def __init__(self, share: float, rest: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 1)
        self.share, self.rest = share, rest

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        lead = self.rest(x) + self.share * self.head(self.layer(x)[0][:, -1])
        return torch.cat([-lead, lead], 1)


class Saddle(nn.Module):
    """A number of two channels, of which the second enters by a product that is zero, and ought not to be."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.left, self.right = (nn.Parameter(value) for value in (torch.tensor(1.0), *torch.zeros(2, 4)))

    def forward(self, x: Tensor) -> Tensor:
        """Answer with one number."""
        first, second = x.mean(1).unbind(1)
        return (self.gain * first + (self.left * self.right).sum() * second)[:, None]


def _stepwise(*, causal: bool) -> Made:
    """Train on the sign of the running sum."""
    model, x = CausalAttention(causal=causal), signals()
    y = (x[:, :, 0].cumsum(1) > 0).long()
    return fitted(model, x, y, steps=80), x, y


def _hidden_states() -> Made:
    """Draw sequences from the very process that the model filters."""
    generator = torch.Generator().manual_seed(1)
    turns = torch.rand(600, 40, generator=generator) < 0.1
    states = (turns.cumsum(1) + torch.randint(0, 2, (600, 1), generator=generator)) % 2
    return Belief(), (2.0 * states - 1)[:, :, None] + torch.randn(600, 40, 1, generator=generator), states[:, -1]


def _ensemble() -> Made:
    x = signals()
    y = (x[:, :, 0].mean(1) > 0).long()
    return Average(*(fitted(Recurrent(nn.GRU(1, 4, batch_first=True)), x, y, 30) for _ in range(3))), x, y


def _to_length() -> Made:
    x = torch.where(PADDED[:, :, None], 7.0, signals())
    y = (torch.where(PADDED, 0.0, x[:, :, 0]).sum(1) > 0).long()
    return fitted(AtLength(), x, y, lengths=LENGTHS), x, y


def _leaked() -> Made:
    """Put the class into the padding, which the model reads."""
    y = torch.randint(0, 2, (COUNT,), generator=torch.Generator().manual_seed(5))
    x = torch.where(PADDED[:, :, None], (2.0 * y - 1)[:, None, None], signals())
    return Told(lambda x, lengths: x[:, -1, 0]), x, y  # noqa: ARG005


def _reading(answer: Callable[[Tensor, Tensor], Tensor]) -> Made:
    model, x = Told(answer), signals()
    with torch.no_grad():
        return model, x, model(x, LENGTHS).argmax(1)


def _with(answer: Callable[[nn.Module, Tensor], Any], distance: float = 0.0) -> Made:
    """Change what a linear model reads or answers; at a distance from its boundary, or far from it."""
    model, x, y = _thin(distance) if distance else _weighted(EVEN)
    return Wrapped(model, answer), x, y


def _pipeline(estimator: Any, *, numbers: bool = False, names: bool = False) -> Any:
    x = signals()
    level = x[:, :, 0].mean(1)
    y: Any = level if numbers else np.array(["down", "up"])[(level > 0).long()] if names else (level > 0).long()
    flat = FunctionTransformer(lambda values: np.asarray(values).reshape(len(values), -1))
    model = make_pipeline(flat, StandardScaler(), estimator)
    return model.fit(x.numpy(), np.asarray(y)), x, y


def _logistic(x: Tensor) -> Tensor:
    """Run a chaotic map that no layer holds."""
    state = 0.3 + 0 * x[:, 0]
    for part in x.unbind(1):
        state = 3.9 * state * (1 - state) + 1e-6 * torch.tanh(part)
    return 4 * (state - 0.5)


def _lorenz_loop(step: float) -> Made:
    move = _lorenz(step)

    def answer(x: Tensor) -> Tensor:
        state = torch.tensor([1.0, 1.0, 20.0]).to(x).expand(len(x), 3)
        for part in x.unbind(1):
            state = move(state, part)
        return state[:, 0]

    return Pooled(answer), _long(), None


def _echo(gain: float, lag: int) -> Tensor:
    weights = torch.zeros(lag + 1)
    weights[0], weights[lag] = 1.0, gain
    return weights


def _leak(rate: float, turn: float = 0.0) -> Tensor:
    ages = torch.arange(LONG_STEPS * 1.0)
    return rate**ages * torch.cos(turn * ages)


def _offset(add: float) -> Made:
    x = signals()
    return Wrapped(Mean(1.0), lambda model, x: model(x) + add), x, x[:, :, 0].mean(1)


def _heavy_and_far() -> Made:
    x = signals()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        noise = torch.distributions.StudentT(2.0).sample((COUNT,))
    return Wrapped(Mean(1e3), lambda model, x: model(x) + 1e5), x, 1e5 + 1e3 * x[:, :, 0].mean(1) + noise


def _saddle() -> Made:
    x = signals(channels=2)
    return Saddle(), x, x[:, :, 0].mean(1) + 0.8 * x[:, :, 1].mean(1)


def _silent_at_first() -> Tensor:
    x = _long()
    x[:, : 3 * LONG_STEPS // 4] = 0
    return x


def _levels() -> Tensor:
    """Sequences that hardly change in time."""
    return _long()[:, :1].repeat(1, LONG_STEPS, 1) + 1e-3 * _long(6)


def _scaled() -> Made:
    x, scale = signals(channels=2), torch.tensor([1e12, 1e-12])
    return Wrapped(Weighted(EVEN), lambda model, x: model(x / scale.to(x))), x * scale, (x[:, :, 0].mean(1) > 0).long()


def _bfloat16() -> Made:
    model, x, y = _trained(Recurrent(nn.GRU(1, 8, batch_first=True)))
    return model.bfloat16(), x, y


def _traced() -> Made:
    model, x, y = _trained(Recurrent(nn.GRU(1, 8, batch_first=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what users compiled before is still to be audited
        traced: Any = torch.jit.trace(model.eval(), x[:4])
    return traced, x, y


def _frozen() -> Made:
    model, x, y = _trained(Recurrent(nn.GRU(1, 8, batch_first=True)))
    return model.requires_grad_(False), x, y


def _few_of(rows: slice, copies: int = 1) -> Made:
    model, x, y = _weighted(EVEN)
    assert y is not None
    return model, x[rows].repeat(copies, 1, 1), y[rows].repeat(copies)


UNHEARD: Labels = {
    "lyapunov": ("Settles", "Neutral", "Sensitive"),
    "gradients": ("Gradients live", "Gradients vanish"),
    "certificates": ("Proved stable", "Memory proved"),
}
GIVEN = {"lengths": LENGTHS}
FORMS: dict[str, Known] = {
    # other architectures
    "causal Transformer": Known(lambda: _stepwise(causal=True), SKILLED, ahead=False),
    "Transformer, every step": Known(lambda: _stepwise(causal=False), SKILLED, ahead=True),
    "filter of hidden states": Known(lambda: _hidden_states(), {"memory": LONG, **CALIBRATED}),
    "echo state network": Known(lambda: _told(Reservoir(), signals()), SKILLED),
    "Mamba-like": Known(lambda: _trained(Selective()), SKILLED),
    "state of length 1": Known(lambda: _trained(UnitState()), SKILLED),
    "ensemble of GRUs": Known(lambda: _ensemble(), SKILLED),
    "GRU and lengths": Known(lambda: _to_length(), SKILLED, given=GIVEN),
    "hysteresis": Known(
        lambda: by_sign(lambda h, x: torch.tanh(2 * h + x), 2.0, _long()), {"lyapunov": ("Sensitive",), **SKILLED}
    ),
    # what is remembered
    "leak of .99": Known(lambda: _memory(_leak(0.99)), LASTS, ("exponential", "non-decaying")),
    "turning leak of .8": Known(lambda: _memory(_leak(0.8, 0.7)), FADES, ("exponential",)),
    "loud echo after 40": Known(lambda: _memory(_echo(0.8, 40)), LASTS, ("finite",)),
    "faint echo after 40": Known(lambda: _memory(_echo(0.3, 40)), FADES, ("finite",)),
    "sum, silent at first": Known(lambda: (Filter(torch.ones(LONG_STEPS)), _silent_at_first(), None), LASTS),
    "levels, last step": Known(lambda: (Pooled(lambda x: x[:, -1, 0]), _levels(), None), FADES),
    "levels, first step": Known(lambda: (Pooled(lambda x: x[:, 0, 0]), _levels(), None), LASTS),
    "Lorenz in a loop, .02": Known(lambda: _lorenz_loop(0.02), NONE),
    "Lorenz in a loop, .01": Known(lambda: _lorenz_loop(0.01), NONE),
    # layers that are not heard
    "layer unheard, beside chaos": Known(lambda: _told(Beside(0.0, _logistic), _long()), {**UNHEARD, **NONE}),
    "layer hardly heard, beside chaos": Known(lambda: _told(Beside(1e-6, _logistic), _long()), {**UNHEARD, **NONE}),
    "layer unheard, beside a sum": Known(lambda: _told(Beside(0.0, lambda x: x.sum(1)), _long()), {**UNHEARD, **LASTS}),
    # what answers otherwise when it is watched
    "class in the padding": Known(lambda: _leaked(), NOTHING, given=GIVEN),
    "reads the padding": Known(lambda: _reading(lambda x, n: x.sum((1, 2))), NOTHING, given=GIVEN),  # noqa: ARG005
    "by length": Known(lambda: _reading(lambda x, n: n - 17.5), NONE, given=GIVEN),  # noqa: ARG005
    "size of the batch": Known(lambda: _with(lambda model, x: model(x) * (1 if len(x) > 16 else -1)), NOTHING),
    "largest of the batch": Known(lambda: _with(lambda model, x: model(x) - model(x).amax(0) / 2), NOTHING),
    "gradients answered otherwise": Known(
        lambda: _with(lambda model, x: model(x.round()) if torch.is_grad_enabled() else model(x), 0.02), NOTHING
    ),
    "changes its input in place": Known(
        lambda: _with(lambda model, x: model(x.mul_(2.0))), {**SKILLED, "attack": ("Masked",)}
    ),
    "no gradient inside": Known(lambda: _with(lambda model, x: torch.no_grad()(model)(x), 0.02), UNSTEADY),
    "inference mode inside": Known(lambda: _with(lambda model, x: torch.inference_mode()(model)(x), 0.02), UNSTEADY),
    "whole numbers inside": Known(lambda: _with(lambda model, x: model((50 * x).long() / 50), 0.02), UNSTEADY),
    "stairs against the slope": Known(
        lambda: _with(lambda model, x: model(1.1 * (20 * x).round() / 20 - 0.1 * x), 0.02), UNSTEADY
    ),
    # other forms of data, targets and answers
    "offset targets, met": Known(lambda: _offset(0.0), SKILLED),
    "offset targets, missed": Known(lambda: _offset(5.0), NOTHING),
    "heavy tails, far from zero": Known(lambda: _heavy_and_far(), SKILLED),
    "huge and tiny channels": Known(lambda: _scaled(), SKILLED),
    "five sequences": Known(lambda: _few_of(slice(5)), NOTHING),
    "ten sequences, twelve times": Known(lambda: _few_of(slice(10), 12), NOTHING),
    "one step": Known(
        lambda: (Weighted(torch.ones(1)), signals()[:, :1], (signals()[:, 0, 0] > 0).long()), {**NONE, **SKILLED}
    ),
    "inputs that do not vary": Known(
        lambda: (Weighted(EVEN), torch.ones(COUNT, STEPS, 1), torch.arange(COUNT) % 2), NOTHING
    ),
    "bfloat16": Known(lambda: _bfloat16(), {"attack": ("Masked",), **SKILLED}),
    "traced by torch.jit": Known(lambda: _traced(), SKILLED),
    "frozen weights": Known(lambda: _frozen(), SKILLED),
    "squeezed logit": Known(lambda: _with(lambda model, x: model(x)[:, 1] - model(x)[:, 0]), SKILLED),
    "saddle": Known(lambda: _saddle(), {"curvature": ("A minimum",), **SKILLED}),
    # fitted estimators
    "logistic regression": Known(lambda: _pipeline(LogisticRegression()), SKILLED),
    "logistic regression, names": Known(lambda: _pipeline(LogisticRegression(), names=True), SKILLED),
    "neighbors": Known(lambda: _pipeline(KNeighborsClassifier(3)), SKILLED),
    "forest": Known(lambda: _pipeline(RandomForestClassifier(20, random_state=0)), SKILLED),
    "ridge": Known(lambda: _pipeline(Ridge(), numbers=True), SKILLED),
}
