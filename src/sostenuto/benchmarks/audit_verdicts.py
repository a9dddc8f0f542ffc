"""Verdicts of an audit on small models whose truth is known: what no badge may say of each.

Every model is audited with several seeds. A verdict is false where its label is one of those that the model's making
rules out; of models without skill every praise is false. Seeds that decide differently are counted too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from tqdm import tqdm

from sostenuto.audits.audit import audit
from sostenuto.audits.checks import all_checks

TITLE = "verdicts of the quick audit on models of known truth, over three seeds"

COUNT, STEPS = 96, 24


class Known(NamedTuple):
    """A model with its data, and the labels that would be false for each check."""

    make: Callable[[], tuple[nn.Module, Tensor, Tensor]]
    never: dict[str, tuple[str, ...]]


class Weighted(nn.Module):
    """Two scores ±g·Σ_t w_t x_t: a linear memory with known weights; ``turn`` bends the sequence first."""

    def __init__(self, weights: Tensor, gain: float = 4.0, turn: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.weights, self.turn = nn.Parameter(gain * weights), turn

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        seen = x if self.turn is None else self.turn(x)
        lead = (seen[:, :, 0] * self.weights[: x.shape[1]]).sum(1, keepdim=True)
        return torch.cat([-lead, lead], 1)


class Recurrent(nn.Module):
    """A layer of torch and a read-out of its last state."""

    def __init__(self, layer: nn.Module, outputs: int = 2) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(layer.hidden_size, outputs)  # pyright: ignore[reportArgumentType]

    def forward(self, x: Tensor) -> Tensor:
        """Answer a batch."""
        return self.head(self.layer(x)[0][:, -1])


class Attention(nn.Module):
    """A Transformer's encoder; ``first`` reads the first position, as BERT does, instead of the mean."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.lift, self.encoder, self.head = nn.Linear(1, 8), nn.TransformerEncoder(block, 1), nn.Linear(8, 2)
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        states = self.encoder(self.lift(x))
        return self.head(states[:, 0] if self.first else states.mean(1))


class Convolution(nn.Module):
    """A temporal convolution with a causal padding."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Conv1d(1, 8, 5), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        return self.head(torch.relu(self.one(nn.functional.pad(x.transpose(1, 2), (4, 0)))).mean(2))


class Minimal(nn.Module):
    """A minGRU: gates of the input alone."""

    hidden_size, input_size, batch_first = 8, 1, True

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.candidate, self.head = nn.Linear(1, 8), nn.Linear(1, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        state = torch.zeros(len(x), 8, device=x.device, dtype=x.dtype)
        for step in range(x.shape[1]):
            gate = torch.sigmoid(self.gate(x[:, step]))
            state = (1 - gate) * state + gate * self.candidate(x[:, step])
        return self.head(state)


class Noisy(Weighted):
    """Adds noise to its scores, in evaluation mode too."""

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        scores = super().forward(x)
        return scores + 3.0 * torch.randn_like(scores)


class Constant(nn.Module):
    """Answers the same whatever it reads."""

    def __init__(self, lead: float) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor([0.0, lead]))

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        return self.scores.expand(len(x), 2) + 0.0 * x.sum()


class Mean(nn.Module):
    """Numbers: a gain times the mean over time."""

    def __init__(self, gain: float, outputs: int = 1) -> None:
        super().__init__()
        self.gain, self.outputs = nn.Parameter(torch.tensor(gain)), outputs

    def forward(self, x: Tensor) -> Tensor:
        """Answer with numbers."""
        return (self.gain * x[:, :, 0].mean(1, keepdim=True)).expand(-1, self.outputs)


def signals(seed: int = 0, channels: int = 1) -> Tensor:
    """Draw sequences of standard normal numbers."""
    return torch.randn(COUNT, STEPS, channels, generator=torch.Generator().manual_seed(seed))


def fitted(model: nn.Module, x: Tensor, y: Tensor, steps: int = 60) -> nn.Module:
    """Train a little, by Adam."""
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        answers = model(x)
        loss = (
            nn.functional.mse_loss(answers[:, 0], y)
            if y.is_floating_point()
            else nn.functional.cross_entropy(answers, y)
        )
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
SKILLED = {"skill": ("No better than guessing",)}
UNSTEADY = {"attack": ("Steady",), **SKILLED}
MASKED = {"attack": ("Steady", "Wavers"), **SKILLED}
EVEN, LAST = torch.ones(STEPS) / STEPS**0.5, torch.eye(STEPS)[-1]


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
    "chaotic RNN": Known(lambda: _chaotic(3.0), {"lyapunov": ("Settles", "Neutral")}),
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
}


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


def run(progress: bool = True, seeds: int = 3) -> dict[str, Any]:
    """Return the verdicts of every model and seed, those that are false, and those that seeds disagree about."""
    rows = {name: judge(name, seeds) for name in tqdm(KNOWN, desc="audit verdicts", disable=not progress)}
    return {
        "models": len(rows),
        "seeds": seeds,
        "verdicts": sum(len(labels) for row in rows.values() for labels in row["labels"].values()),
        "false": sum(len(row["false"]) for row in rows.values()),
        "seeds_disagree": sum(len(row["disagree"]) for row in rows.values()),
        "by_model": rows,
    }


def judge(name: str, seeds: int) -> dict[str, Any]:
    """Audit one model with every seed; memory, which is judged without skill's data, has its own tests."""
    case, chosen = KNOWN[name], [check for check in all_checks() if check not in ("memory", "certified")]
    labels: dict[str, list[str]] = {}
    for seed in range(seeds):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            model, x, y = case.make()
            report = audit(model, x, y, checks=chosen, seed=seed, progress=False)
        for check, verdict in report.verdicts.items():
            labels.setdefault(check, []).append(verdict.label)
    never = case.never
    false = [f"{check}: {label}" for check, told in labels.items() for label in told if label in never.get(check, ())]
    disagree = [check for check, told in labels.items() if len(set(told) - {"Undecided"}) > 1]
    return {"labels": labels, "false": false, "disagree": disagree}
