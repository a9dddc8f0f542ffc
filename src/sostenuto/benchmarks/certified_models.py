"""Certificates of 1000 random recurrent layers, held against what the layers do on random data."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from sostenuto.audits.stability.certified_stability import certified_stability
from sostenuto.nn import RNN, AntisymmetricRNN, CoRNN, IndRNN, LipschitzRNN, ResidualRNN

TITLE = "certificates of random layers against the contraction measured on data"

COUNT = 1000


def run(progress: bool = True, count: int = COUNT) -> dict[str, Any]:
    """Return how many certificates of each kind hold, how many the data contradict, and how tight they are."""
    held, asked, wrong = Counter(), Counter(), Counter()
    gaps: dict[str, list[float]] = {}
    for seed in tqdm(range(count), desc="certified models", unit="model", disable=not progress):
        layer = random_layer(seed)
        generator = torch.Generator().manual_seed(seed)
        sequences = 2 * torch.randn(2, 12, layer.input_size, generator=generator)  # pyright: ignore[reportCallIssue, reportArgumentType]
        for judgment in certified_stability(layer, sequences, points=16).judged:
            kind = judgment.certificate.kind
            asked[kind] += 1
            held[kind] += judgment.certificate.holds
            wrong[kind] += judgment.contradicted
            if judgment.certificate.holds and judgment.certificate.rate and judgment.measured:
                gaps.setdefault(kind, []).append(judgment.certificate.rate / judgment.measured)
    return {
        "models": count,
        "asked": dict(asked),
        "certified": dict(held),
        "contradicted": dict(wrong),
        "median_share_of_measured_rate": {kind: float(np.median(shares)) for kind, shares in gaps.items()},
    }


def random_layer(seed: int) -> nn.Module:
    """Draw a small layer of a random kind, with weights from tame to wild.

    >>> random_layer(3).hidden_size <= 5
    True
    """
    rng = np.random.default_rng(seed)
    size, scale = int(rng.integers(1, 6)), float(rng.uniform(0.1, 2.0))
    kinds: list[Any] = [
        lambda: LipschitzRNN(
            2,
            size,
            step_size=float(rng.uniform(0.01, 0.3)),
            beta=float(rng.uniform(0.5, 1)),
            gamma=(float(rng.uniform(0, 4)), float(rng.choice([0.0, rng.uniform(0, 2)]))),
            integrator=str(rng.choice(["euler", "imex"])),
        ),
        lambda: CoRNN(2, size, step_size=0.1, gamma=float(rng.uniform(0.5, 3)), epsilon=float(rng.uniform(0.5, 3))),
        lambda: AntisymmetricRNN(2, size, step_size=0.05, gamma=float(rng.uniform(0, 1))),
        lambda: ResidualRNN(2, size, step_size=0.1),
        lambda: IndRNN(2, size),
        lambda: RNN(2, size),
    ]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = kinds[rng.choice(len(kinds), p=[0.45, 0.15, 0.05, 0.05, 0.1, 0.2])]()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(scale)
    return layer
