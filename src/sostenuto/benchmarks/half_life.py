"""What a promised half-life costs: accuracy of UnICORNN on digits read pixel by pixel, and then noise.

The 8 × 8 digits are read as 64 numbers and followed by white noise until 500 steps; the answer is read from the last
state, so the network has to carry the digit through 436 steps of noise. One recipe for all: two layers of 64
oscillators, Adam with a one-cycle schedule, no early stopping, the last weights on the test part.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from sostenuto import datasets
from sostenuto.nn import UnICORNN

TITLE = "accuracy of UnICORNN on digits and noise with a promised half-life"
HALF_LIVES = (None, 100.0, 784.0)
SEEDS = (0, 1, 2)
STEPS = 500


def run(
    progress: bool = True,
    epochs: int = 20,
    seeds: tuple[int, ...] = SEEDS,
    half_lives: tuple[float | None, ...] = HALF_LIVES,
) -> dict[str, Any]:
    """Return accuracies on the test part, and what each trained layer provably remembers, for every half-life."""
    parts = _parts()
    found: dict[str, Any] = {}
    with tqdm(total=len(seeds) * len(half_lives), desc="half-lives", unit="run", disable=not progress) as bar:
        for half_life in half_lives:
            rows = []
            for seed in seeds:
                rows.append(_trained(parts, half_life, seed, epochs))
                bar.update()
            accuracy = [row["accuracy"] for row in rows]
            spread = float(np.std(accuracy, ddof=1)) if len(rows) > 1 else 0.0
            name = "none" if half_life is None else f"{half_life:g}"
            found[name] = {"mean_accuracy": float(np.mean(accuracy)), "standard_deviation": spread, "runs": rows}
    return {"epochs": epochs, "steps": STEPS, "half_lives": found}


def _parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give training sequences and classes, test sequences and classes; the noise is drawn once."""
    data, generator = datasets.load("digits"), torch.Generator().manual_seed(0)
    found: list[Tensor] = []
    for part in (data.train, data.test):
        assert part is not None
        values = torch.tensor(np.stack(part.sequences)).float()
        values = (values - values.mean()) / values.std()
        noise = torch.randn(len(values), STEPS - values.shape[1], 1, generator=generator)
        classes = torch.tensor(np.asarray(part.targets).astype(int))
        found += [torch.cat([values, noise], dim=1), classes]
    return found[0], found[1], found[2], found[3]


def _trained(parts: tuple[Tensor, ...], half_life: float | None, seed: int, epochs: int) -> dict[str, Any]:
    values, classes, test, test_classes = parts
    torch.manual_seed(seed)
    layer = UnICORNN(1, 64, num_layers=2, batch_first=True, step_size=0.3, stiffness=1.0, half_life=half_life)
    head = nn.Linear(64, 10)
    weights = [*layer.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-2)
    batches = -(-len(values) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=epochs * batches)
    for _ in range(epochs):
        for rows in torch.randperm(len(values)).split(64):
            loss = F.cross_entropy(head(layer(values[rows])[0][:, -1]), classes[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        right = head(layer(test)[0][:, -1]).argmax(-1) == test_classes
    proved = layer.memory_certificate()
    return {
        "seed": seed,
        "accuracy": float(right.double().mean()),
        "remembers_at_least": proved.remembers_at_least,
        "median_unit": float(np.median(proved.per_unit)),
        "layers": list(proved.layers),
    }
