"""More models whose truth is known by their making: those that invite a verdict that is false."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sostenuto.benchmarks._audited_models import Filter, Mean, Noisy, Pooled, Recurrent, Stepped, Weighted
from sostenuto.benchmarks._known_models import (
    COUNT,
    EVEN,
    GREEN_OF_GUESSERS,
    GROWS,
    LASTS,
    MASKED,
    NOTHING,
    SHORT,
    SKILLED,
    STEPS,
    UNSTEADY,
    Known,
    Labels,
    _backwards,
    _long,
    _map,
    _memory,
    _thin,
    _told,
    _trained,
    _weighted,
    fitted,
    signals,
)

MANY = 400
Made = tuple[nn.Module, Tensor, Tensor | None]


class Wrapped(nn.Module):
    """Does something else to what a model reads or answers; ``answer`` takes the model and the input."""

    def __init__(self, model: nn.Module, answer: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.model, self.answer = model, answer

    def forward(self, x: Tensor) -> Any:
        """Answer a batch."""
        return self.answer(self.model, x)


class Training(Wrapped):
    """Stays in training mode whatever it is told."""

    def train(self, mode: bool = True) -> nn.Module:  # noqa: ARG002
        """Do not listen."""
        return super().train(True)


class EveryStep(nn.Module):
    """A recurrent layer and a read-out of every state."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Answer at every step."""
        return self.head(self.layer(x)[0])


class Backward(nn.Module):
    """A causal filter that reads the sequence from its end."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.inner = Filter(weights)

    def forward(self, x: Tensor) -> Tensor:
        """Answer at every step with what comes after it."""
        return self.inner(x.flip(1)).flip(1)


class PaddedTokens(nn.Module):
    """A Transformer on token ids that masks the padding, id 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(12, 8, padding_idx=0), nn.Linear(8, 2)
        block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Score two classes by the mean over what is no padding."""
        padding = ids == 0
        states = self.body(self.embedding(ids), src_key_padding_mask=padding)
        weights = (~padding).float()[:, :, None]
        return self.head((states * weights).sum(1) / weights.sum(1))


class Steep(nn.Module):
    """Two scores by the small difference of large weights, beside five weights that do nothing."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(size + 4 * EVEN), nn.Parameter(torch.full((STEPS,), size))
        self.idle = nn.ParameterList([nn.Parameter(torch.full((2, 2), 1e-6)) for _ in range(5)])

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        lead = (x[:, :, 0] @ (self.up - self.down))[:, None]
        return torch.cat([-lead, lead], 1) + 0 * sum(weight.sum() for weight in self.idle)


def _reported(scale: float) -> Made:
    """Draw classes from the probabilities that scores of scale 1 stand for."""
    x = torch.randn(4 * MANY, STEPS, 1, generator=torch.Generator().manual_seed(1))
    odds = 3 * (x[:, :, 0] * EVEN).sum(1)
    y = torch.rand(len(x), generator=torch.Generator().manual_seed(2)) < torch.sigmoid(odds)
    return Weighted(EVEN, gain=1.5 * scale), x, y.long()


def _rare(*, told: bool, distance: float = 0.0, share: float = 0.01) -> Made:
    """Let one class be one in a hundred, or another share; ``told`` apart by the model, or never."""
    x = torch.randn(10 * COUNT, STEPS, 1, generator=torch.Generator().manual_seed(1))
    lead = (x[:, :, 0] * EVEN).sum(1)
    rare = int(share * len(x))
    high = lead >= lead.topk(rare).values[-1]
    bar = lead.topk(rare + 1).values[-1]
    # What is rare lies just beyond the boundary, or far from it.
    x = torch.where(high[:, None, None], x - ((lead - bar - distance)[:, None] * EVEN)[:, :, None], x)
    x = torch.where(high[:, None, None], x, x - (2 * EVEN)[:, None])

    def scored(_: nn.Module, x: Tensor) -> Tensor:
        lead = (x[:, :, 0] * EVEN).sum(1, keepdim=True) - bar
        return torch.cat([-lead, lead], 1) if told else torch.cat([lead * 0 + 5, lead * 0], 1)

    return Wrapped(Weighted(EVEN), scored), x, high.long()


def _heavy(*, skilled: bool) -> Made:
    """Regress numbers of which a few are huge, and not to be known."""
    x = signals()
    tails = torch.distributions.StudentT(1.2)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(5)
        noise = tails.sample((COUNT,))
    return Mean(1.0 if skilled else 0.0), x, x[:, :, 0].mean(1) + (0.02 if skilled else 1.0) * noise


def _jittered(size: float) -> Made:
    """Four sequences many times, each moved by next to nothing, and classes that suit the model by luck."""
    x = signals()[:4].repeat(24, 1, 1)
    x = x + size * torch.randn(x.shape, generator=torch.Generator().manual_seed(6))
    return _told(Weighted(EVEN), x)


def _position() -> Made:
    """Answer by the row of the batch, where classes alternate in the data."""

    def scored(_: nn.Module, x: Tensor) -> Tensor:
        lead = (torch.arange(len(x)) % 2 * 2.0 - 1)[:, None] + 0 * x[:, 0]
        return torch.cat([-lead, lead], 1)

    return Wrapped(Weighted(EVEN), scored), signals(), torch.arange(COUNT) % 2


def _known_by_heart() -> Made:
    """Be right where a sequence is one that is known, to the last digit, and answer 0 elsewhere."""
    x = signals()
    y = torch.randint(0, 2, (COUNT,), generator=torch.Generator().manual_seed(9))
    keys = {row.numpy().tobytes(): int(label) for row, label in zip(x, y, strict=True)}

    def scored(_: nn.Module, x: Tensor) -> Tensor:
        lead = torch.tensor([[4.0 * keys.get(row.numpy().tobytes(), 0) - 2] for row in x.detach()])
        return torch.cat([-lead, lead], 1) + 0 * x.sum()

    return Wrapped(Weighted(EVEN), scored), x, y


def _hidden_randomness() -> Made:
    model, x, y = _weighted(EVEN)
    draw = np.random.default_rng()
    return Wrapped(model, lambda model, x: model(x) + float(draw.normal()) * torch.tensor([-0.3, 0.3])), x, y


def _batch_norm(*, frozen: bool) -> Made:
    model, x, y = _weighted(EVEN)
    norm = nn.BatchNorm1d(2, affine=False, track_running_stats=frozen)
    kind = Training if frozen else Wrapped
    wrapped = kind(nn.Sequential(model, norm), lambda model, x: model(x))
    return wrapped.train() if frozen else wrapped, x, y


def _dropping() -> Made:
    """Leave dropout on, before a read-out with thin margins."""
    model, x, y = _thin(0.002)
    return Training(nn.Sequential(nn.Dropout(0.3), model), lambda model, x: model(x)).train(), x, y


def _minimum(gain: float) -> Made:
    """Put the one weight of a line at its optimum times a gain."""
    x = signals()
    y = x[:, :, 0].mean(1) + 0.1 * torch.randn(COUNT, generator=torch.Generator().manual_seed(8))
    best = float((x[:, :, 0].mean(1) * y).sum() / x[:, :, 0].mean(1).square().sum())
    return Mean(gain * best), x, y


def _padded() -> Made:
    ids = torch.randint(1, 12, (2 * COUNT, STEPS), generator=torch.Generator().manual_seed(4))
    lengths = torch.randint(STEPS // 2, STEPS + 1, (2 * COUNT,), generator=torch.Generator().manual_seed(5))
    ids = torch.where(torch.arange(STEPS) < lengths[:, None], ids, 0)
    y = ((ids > 5).sum(1) * 2 > (ids > 0).sum(1)).long()
    return fitted(PaddedTokens(), ids, y), ids, y


def by_sign(step: Callable[[Tensor, Tensor], Tensor], scale: float, x: Tensor) -> Made:
    """Score two classes by the sign of the first number of a last state, and label sequences by the answers."""
    model = Recurrent(Stepped(step, torch.zeros(2)))
    with torch.no_grad():
        model.head.weight.copy_(torch.tensor([[-scale, 0.0], [scale, 0.0]]))
        model.head.bias.zero_()
    return _told(model, x)


def _several(scale: float) -> Made:
    """Three numbers, of which one is not to be known; ``scale`` is its size."""
    x = signals()
    y = x[:, :, 0].mean(1, keepdim=True).expand(-1, 3).clone()
    y[:, 2] = scale * torch.randn(COUNT, generator=torch.Generator().manual_seed(3))
    return Mean(1.0, 3), x, y


def _double() -> Made:
    model, x, y = _trained(Recurrent(nn.GRU(1, 8, batch_first=True)))
    return model.double(), x.double(), y


def _answered(answer: Callable[[Tensor], Any]) -> Made:
    model, x, y = _weighted(EVEN)
    return Wrapped(model, lambda model, x: answer(model(x))), x, y


class Output(OrderedDict[str, Tensor]):
    """A record as Hugging Face's models return: a dict whose entries are attributes too."""

    def __getattr__(self, name: str) -> Tensor:
        """Return an entry."""
        if name in self:
            return self[name]
        raise AttributeError(name)


CALIBRATED: Labels = {"calibration": ("Overconfident", "Underconfident", "Uneven confidence"), **SKILLED}
PERIODIC = (torch.arange(128) % 12 == 0).float()
TRAPS: dict[str, Known] = {
    # what is remembered
    "delay of 37": Known(lambda: _memory(torch.eye(38)[37]), LASTS, ("finite",)),
    "pulse every 12 steps": Known(lambda: _memory(PERIODIC), LASTS, ("periodic", "non-decaying")),
    "leak of .002": Known(
        lambda: by_sign(lambda h, x: 0.998 * h + x, 1.0, _long()),
        {"memory": SHORT, "lyapunov": ("Sensitive",), **SKILLED},
    ),
    "sign of the first step": Known(lambda: _told(Pooled(lambda x: x[:, 0, 0].sign()), _long()), {**LASTS, **MASKED}),
    # holds its first input: nothing later moves the state, and no gradient reaches it
    "latch": Known(
        lambda: by_sign(lambda h, x: torch.tanh(40 * h + 3 * x), 2.0, _long()[:, :STEPS]),
        {**LASTS, "gradients": ("Gradients live",), "lyapunov": ("Sensitive",), **SKILLED},
    ),
    "backward filter": Known(lambda: (Backward(0.8 ** torch.arange(64.0)), _long(), None), {}, ahead=True),
    "both directions, LSTM": Known(
        lambda: (EveryStep(nn.LSTM(1, 8, batch_first=True, bidirectional=True), 16), _long(), None), {}, ahead=True
    ),
    "weakly chaotic": Known(lambda: _map(lambda h, x: 3.58 * h * (1 - h) + 1e-7 * x, [0.3, 0.4]), GROWS),
    "length of the sum": Known(lambda: _told(Pooled(lambda x: x.sum((1, 2)).abs() - 8), _long()), {**LASTS, **SKILLED}),
    # what is not a judge of one sequence, or knows too much
    "row of the batch": Known(lambda: _position(), NOTHING),
    "by heart": Known(lambda: _known_by_heart(), {**UNSTEADY, "noise": ("Steady",)}),
    "hidden randomness": Known(lambda: _hidden_randomness(), NOTHING),
    "batch norm of the batch": Known(lambda: _batch_norm(frozen=False), NOTHING),
    "batch norm in training mode": Known(lambda: _batch_norm(frozen=True), NOTHING),
    "dropout in training mode": Known(lambda: _dropping(), UNSTEADY),
    "four sequences, jittered": Known(lambda: _jittered(1e-6), NOTHING),
    "four sequences, jittered more": Known(lambda: _jittered(1e-3), NOTHING),
    # what is fooled
    "thin and sure": Known(lambda: (Weighted(EVEN, gain=1e4), *_thin(0.02)[1:]), UNSTEADY),
    "masked by a stop, thin": Known(lambda: _thin(0.02, lambda x: x.detach()), UNSTEADY),
    "masked by a false sign, sure": Known(
        lambda: (Weighted(EVEN, gain=1e4, turn=_backwards), *_thin(0.02)[1:]), UNSTEADY
    ),
    "noise in every answer, thin": Known(lambda: (Noisy(10 * EVEN), *_thin(0.02)[1:]), UNSTEADY),
    # what its confidence and its classes hide
    "probabilities as they are": Known(lambda: _reported(1.0), CALIBRATED),
    "too sure": Known(lambda: _reported(4.0), {"calibration": ("Honest confidence", "Underconfident"), **SKILLED}),
    "not sure enough": Known(
        lambda: _reported(0.25), {"calibration": ("Honest confidence", "Overconfident"), **SKILLED}
    ),
    "99 to 1, never told": Known(lambda: _rare(told=False), NOTHING),
    "99 to 1, told": Known(lambda: _rare(told=True, distance=1.0), SKILLED),
    "99 to 1, fooled where rare": Known(lambda: _rare(told=True, distance=0.01), UNSTEADY),
    "97 to 3, fooled where rare": Known(lambda: _rare(told=True, distance=0.01, share=0.03), UNSTEADY),
    # numbers
    "heavy tails": Known(lambda: _heavy(skilled=True), SKILLED),
    "heavy tails, guessed": Known(lambda: _heavy(skilled=False), GREEN_OF_GUESSERS),
    "always the same target": Known(lambda: (Mean(0.0), signals(), torch.full((COUNT,), 2.0)), NOTHING),
    "always the same target, met": Known(
        lambda: (Wrapped(Mean(0.0), lambda model, x: model(x) + 2), signals(), torch.full((COUNT,), 2.0)), NOTHING
    ),
    "three numbers": Known(lambda: _several(0.01), SKILLED),
    "three numbers, one unknown": Known(lambda: _several(10.0), NOTHING),
    "double precision": Known(lambda: _double(), SKILLED),
    # weights
    "minimum of a line": Known(lambda: _minimum(1.0), {"curvature": ("Not a minimum",), **SKILLED}),
    "beside the minimum": Known(lambda: _minimum(1.4), {"curvature": ("A minimum",)}),
    "small difference of large weights": Known(
        lambda: (Steep(1000.0), *_weighted(EVEN)[1:]), {"perturbation": ("Robust weights",), **SKILLED}
    ),
    "untrained GRU of its own classes": Known(
        lambda: _told(Recurrent(nn.GRU(1, 8, batch_first=True)), signals()), {"curvature": ("A minimum",), **SKILLED}
    ),
    # other forms of models and answers
    "record of outputs": Known(lambda: _answered(lambda scores: Output(loss=scores.sum(), logits=scores)), SKILLED),
    "tokens with padding": Known(lambda: _padded(), SKILLED),
    "guessing tokens": Known(lambda: (PaddedTokens(), _padded()[1], torch.randint(0, 2, (2 * COUNT,))), NOTHING),
}
