"""Random models as targets: what they answer to noise is data for students (wang2024, figures 3 and 12)."""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits import memory_function
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.models.prediction import SequenceToSequence
from sostenuto.nn import ResidualRNN


class CausalAttention(nn.Module):
    """One randomly initialized transformer block that looks back only, within each sequence, and reads out a number.

    >>> CausalAttention(8)(torch.zeros(2, 5, 1)).shape
    torch.Size([2, 5, 1])
    """

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.enter = nn.Linear(1, width)
        self.block = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)
        self.leave = nn.Linear(width, 1)

    def forward(self, values: Float[Tensor, "batch time 1"]) -> Float[Tensor, "batch time 1"]:
        """Attend to all steps so far."""
        steps = values.shape[1]
        ahead = torch.ones(steps, steps, dtype=torch.bool, device=values.device).triu(1)
        return self.leave(self.block(self.enter(values), src_mask=ahead))


def random_tanh_teacher(width: int, gain: float, step_size: float, seed: int) -> SequenceToSequence:
    """Draw h ← h + ε tanh(W h + U u): W = −I plus a normal matrix of spectral radius about ``gain``.

    Below 1 the teacher forgets exponentially; above it need not.

    >>> random_tanh_teacher(8, 0.5, 0.1, 0)(torch.zeros(2, 5, 1)).shape
    torch.Size([2, 5, 1])
    """
    torch.manual_seed(seed)
    layer: Any = ResidualRNN(1, width, batch_first=True, activation="tanh", step_size=step_size)
    with torch.no_grad():
        drawn = torch.randn(width, width) * gain / math.sqrt(width)
        layer.weight_hh_l0.copy_(drawn - torch.eye(width))
        layer.weight_ih_l0.normal_()
        layer.bias_ih_l0.zero_()
    teacher = SequenceToSequence(layer, 1)
    with torch.no_grad():
        teacher.head.weight.normal_(std=1 / math.sqrt(width))
        teacher.head.bias.zero_()
    return teacher.eval()


@torch.no_grad()
def taught(teacher: nn.Module, name: str, seed: int, *, num_train: int, num_steps: int) -> Dataset:
    """Ask a teacher about white noise: its answers, less that to silence, are the targets.

    >>> taught(CausalAttention(8).eval(), "attention", 0, num_train=4, num_steps=6).train.targets[0].shape
    (6, 1)
    """
    rng = np.random.default_rng(seed)
    silence = teacher(torch.zeros(1, num_steps, 1))

    def part(count: int) -> SequenceSet:
        inputs = torch.from_numpy(rng.normal(size=(count, num_steps, 1)).astype(np.float32))
        answers = teacher(inputs) - silence
        return SequenceSet(list(inputs.numpy()), list(answers.numpy()), "sequence")

    return Dataset(name, part(num_train), test=part(256), validation=part(256), description="what a random model says")


def remembered(teacher: nn.Module, horizon: int, probe: str = "heaviside") -> dict[str, Any]:
    """Measure a teacher's memory by a step, or another probe, of size 1."""
    memory = memory_function(teacher.double(), horizon, input_size=1, probe=probe, amplitudes=[1.0])
    teacher.float()
    return {"kind": memory.kind, "memory": [max(curve, 1e-18) for curve in memory.memory], "lags": list(memory.lags)}


def deviation(data: Dataset) -> float:
    """Return the standard deviation of all targets of the validation part, the size to measure errors by.

    >>> deviation(taught(nn.Identity(), "echo", 0, num_train=2, num_steps=50)) > 0.9
    True
    """
    assert data.validation is not None
    return float(np.std(np.asarray(list(data.validation.targets or []))))
