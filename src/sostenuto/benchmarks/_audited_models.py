"""Small models of known behavior, which the audit's verdicts are tried on."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


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


class Filter(nn.Module):
    """Answers at every step with a causal convolution of the input with known weights, newest lag first.

    ``way`` computes it by a matrix, by Fourier transform with padding (causal), or without (it wraps around).
    """

    def __init__(self, weights: Tensor, way: str = "matrix") -> None:
        super().__init__()
        self.weights, self.way = nn.Parameter(weights), way

    def forward(self, x: Tensor) -> Tensor:
        """Answer with one number at every step."""
        steps, weights = x.shape[1], self.weights[: x.shape[1]]
        if self.way == "matrix":
            lag = torch.arange(steps)[:, None] - torch.arange(steps)
            matrix = torch.where(lag >= 0, weights[lag.clamp(0, len(weights) - 1)], 0.0)
            matrix = torch.where(lag < len(weights), matrix, 0.0)
            return torch.einsum("st,btc->bsc", matrix, x)
        size = 2 * steps if self.way == "padded" else steps
        product = torch.fft.rfft(x, size, dim=1) * torch.fft.rfft(weights, size)[None, :, None]
        return torch.fft.irfft(product, size, dim=1)[:, :steps]


class Drifting(nn.Module):
    """Two scores that drift together with all input, while their difference looks at the last step alone."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes at every step."""
        common = x.cumsum(1)
        return torch.cat([common - self.gain * x, common + self.gain * x], -1)


class Pooled(nn.Module):
    """Two scores ±g(s) of one statistic of the sequence."""

    def __init__(self, statistic: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gain, self.statistic = nn.Parameter(torch.tensor(4.0)), statistic

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        lead = self.gain * self.statistic(x)[:, None]
        return torch.cat([-lead, lead], 1)


class Stepped(nn.Module):
    """A recurrent layer h ← f(h, x) from a first state, its own output."""

    first: Tensor

    batch_first, input_size = True, 1

    def __init__(self, move: Callable[[Tensor, Tensor], Tensor], first: Tensor) -> None:
        super().__init__()
        self.move, self.hidden_size = move, len(first)
        self.register_buffer("first", first)

    def step(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Take one step; the state is (1, batch, unit)."""
        before = self.first.expand(len(x), -1).to(x.dtype) if state is None else state[0]
        after = self.move(before, x)
        return after, after[None]

    def forward(self, input: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Take all steps."""
        outputs = []
        for part in input.unbind(1):
            output, state = self.step(part, state)
            outputs.append(output)
        assert state is not None
        return torch.stack(outputs, 1), state


class Choosing(nn.Module):
    """Answers by one of several models, chosen by chance in each call."""

    def __init__(self, *members: nn.Module) -> None:
        super().__init__()
        self.members = members
        self.parts = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        return self.members[int(torch.randint(0, len(self.members), ()))](x)


class Normalized(nn.Module):
    """Takes the mean and deviation of the whole batch away, in evaluation mode too."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        scores = self.model(x)
        return (scores - scores.mean(0)) / (scores.std(0, correction=0) + 1e-3)


class Carrying(nn.Module):
    """Keeps the state of the last sequence for the next call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.kept = model, 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        scores = self.model(x)
        moved = scores + self.kept * torch.tensor([1.0, -1.0]).to(scores)
        self.kept = 0.5 * self.kept + float(x.detach().mean(1).sum())
        return moved


class Signed(nn.Module):
    """Hidden units that are signs: their weights get no gradient."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(steps, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        return self.head(torch.sign(self.inner(x[:, :, 0])))


class SignWeights(nn.Module):
    """Weights of which only the signs count; many lie beside zero."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights, self.gain = nn.Parameter(weights), nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        lead = self.gain * (x[:, :, 0] @ torch.sign(self.weights))[:, None]
        return torch.cat([-lead, lead], 1)


class Tilted(nn.Module):
    """Two scores of one lead, moved so that one class is told too boldly and the other too timidly."""

    def __init__(self, steps: int, bold: float, timid: float) -> None:
        super().__init__()
        self.steps, self.gains = steps, nn.Parameter(torch.tensor([timid, bold]))

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        lead = x[:, :, 0].sum(1, keepdim=True).sign()
        lead = torch.where(lead > 0, self.gains[1], -self.gains[0])
        return torch.cat([-lead / 2, lead / 2], 1)


class Diagonal(nn.Module):
    """An S4D: a diagonal linear state of complex poles, a read-out and a gate."""

    def __init__(self, units: int = 8) -> None:
        super().__init__()
        self.log_decay = nn.Parameter(torch.linspace(-4.0, -1.0, units))
        self.turn = nn.Parameter(torch.linspace(0.0, 2.0, units))
        self.gain, self.head = nn.Parameter(torch.randn(units, 2) / units**0.5), nn.Linear(units, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score two classes."""
        ages = torch.arange(x.shape[1] - 1.0, -1.0, -1.0, device=x.device, dtype=x.dtype)
        decay = torch.exp(-torch.exp(self.log_decay) * ages[:, None])
        waves = torch.stack([torch.cos(self.turn * ages[:, None]), torch.sin(self.turn * ages[:, None])], -1)
        kernel = (waves * self.gain).sum(-1) * decay
        return self.head(nn.functional.silu(torch.einsum("tu,bt->bu", kernel, x[:, :, 0])))


class Tokens(nn.Module):
    """An embedding, a Transformer's encoder or a GRU, and a read-out: of ids."""

    def __init__(self, *, attention: bool) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(12, 8), nn.Linear(8, 2)
        block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(block, 1) if attention else nn.GRU(8, 8, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Score two classes."""
        states = self.body(self.embedding(ids))
        return self.head(states[0][:, -1] if isinstance(states, tuple) else states[:, 0])


class Answering(nn.Module):
    """Another form of answers: one logit, probabilities, a dict."""

    def __init__(self, model: nn.Module, form: str) -> None:
        super().__init__()
        self.model, self.form = model, form

    def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        """Answer in that form."""
        scores = self.model(x)
        if self.form == "logit":
            return (scores[:, 1] - scores[:, 0])[:, None]
        return torch.softmax(scores, -1) if self.form == "probabilities" else {"logits": scores}
