"""A small smooth network that is taught a model's answers, for attacks that carry over from it to the model."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sostenuto.audits.batches import EvalBatch

WIDTH, KERNEL, BINS, STEPS, BATCH = 16, 9, 16, 150, 32


class Surrogate(nn.Module):
    """Two convolutions and a linear read-out of their means over equal parts of the time."""

    def __init__(self, channels: int, outputs: int, center: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.center, self.scale = center, scale
        self.body = nn.Sequential(
            nn.Conv1d(channels, WIDTH, KERNEL, padding="same"),
            nn.SiLU(),
            nn.Conv1d(WIDTH, WIDTH, KERNEL, padding="same"),
            nn.SiLU(),
            nn.AdaptiveAvgPool1d(BINS),
            nn.Flatten(),
            nn.Linear(WIDTH * BINS, outputs),
        )

    def forward(self, values: Tensor) -> Tensor:
        """Answer (batch, time, channel) with (batch, out)."""
        return self.body(((values - self.center) / self.scale).transpose(1, 2))


def distilled(model: nn.Module, data: EvalBatch, scale: Tensor, seed: int) -> Surrogate:
    """Teach a network the model's answers to the sequences and to noisy copies of them.

    Random numbers are drawn from ``seed`` and torch's own are left as they were.
    """
    generator = torch.Generator().manual_seed(seed)
    center = data.true_steps().mean(0).to(data.values.dtype)
    deviations = data.deviations.to(data.values.dtype)
    unit = torch.where(deviations > 0, deviations, torch.ones_like(deviations))
    values = torch.where(data.mask[:, :, None], data.values, center)
    noisy = values + 0.3 * scale * torch.randn(values.shape, generator=generator, dtype=values.dtype)
    noisy = torch.where(data.mask[:, :, None], noisy, data.values)
    taught, answers = [], []
    for rows in data.batches(64):
        for given in (data.values[rows], noisy[rows]):
            scores = data.scores(model, rows, given).detach().cpu().to(values.dtype)
            answers.append(F.log_softmax(scores, -1).clamp(min=-8) if data.measure == "accuracy" else scores)
            taught.append(torch.where(data.mask[rows][:, :, None], given, center))
    inputs, goals = torch.cat(taught), torch.cat(answers).nan_to_num(0.0, 0.0, 0.0)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(seed)
        surrogate = Surrogate(values.shape[2], goals.shape[1], center, unit).to(values.dtype)
        optimizer = torch.optim.Adam(surrogate.parameters(), 3e-3)
        for _ in range(STEPS):
            rows = torch.randint(len(inputs), (BATCH,), generator=generator)
            loss = F.mse_loss(surrogate(inputs[rows]), goals[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return surrogate.requires_grad_(False)
