"""Audit five kinds of sequence models with the same call: an LSTM, a GRU, a Transformer, a UnICORNN, a diagonal model.

Each is trained for a few seconds to tell whether the first value of a noisy sequence was positive, which asks for
memory over the whole length. Run it with ``python examples/audit_models.py``; pages go to ``runs/examples``.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

import sostenuto as so

STEPS, WIDTH = 40, 16


class Recurrent(nn.Module):
    """A recurrent layer and a linear read-out of its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score the two classes."""
        return self.head(self.layer(x)[0][:, -1])


class Attention(nn.Module):
    """A small Transformer encoder, averaged over time."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.embed, self.encoder = nn.Linear(1, WIDTH), nn.TransformerEncoder(block, 1)
        self.place = nn.Parameter(0.1 * torch.randn(STEPS, WIDTH))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score the two classes."""
        return self.head(self.encoder(self.embed(x) + self.place[: x.shape[1]]).mean(1))


class Diagonal(nn.Module):
    """A linear state-space model with a diagonal matrix exp(−exp λ), as in the S4 family."""

    def __init__(self) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(torch.linspace(-5.0, -1.0, WIDTH))
        self.drive, self.head = nn.Linear(1, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score the two classes."""
        keep = torch.exp(-torch.exp(self.log_rate))
        lag = torch.arange(x.shape[1] - 1, -1, -1, device=x.device)
        return self.head((keep ** lag[:, None] * self.drive(x)).sum(1))


def sequences(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw noisy sequences and the sign of each one's first value."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, STEPS, 1, generator=generator)
    return x, (x[:, 0, 0] > 0).long()


def train(model: nn.Module, rounds: int) -> None:
    """Fit a model by Adam on fresh draws."""
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(rounds):
        x, y = sequences(128, seed=step + 1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def main(rounds: int = 200, folder: str = "runs/examples") -> dict[str, so.audits.AuditReport]:
    """Train and audit every model; return the reports."""
    torch.manual_seed(0)
    models = {
        "lstm": Recurrent(nn.LSTM(1, WIDTH, batch_first=True)),
        "gru": Recurrent(nn.GRU(1, WIDTH, batch_first=True)),
        "transformer": Attention(),
        "unicornn": Recurrent(so.nn.UnICORNN(1, WIDTH, batch_first=True, step_size=0.5)),
        "diagonal": Diagonal(),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    reports = {}
    for name, model in models.items():
        train(model, rounds)
        reports[name] = so.audit(
            model, *sequences(128, seed=0), checks=["memory", "gradients", "noise"], progress=False
        )
        reports[name].save(Path(folder) / f"{name}.html")
        print(f"--- {name}\n{reports[name].summary()}")
    return reports


if __name__ == "__main__":
    main()
