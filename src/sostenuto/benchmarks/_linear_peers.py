"""Linear and minimal units of the literature, written plainly on the library's scans, in the block they came with."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.ops.damped import damped_scan
from sostenuto.ops.diagonal import gated_scan


class MinGRU(nn.Module):
    """h ← (1 − z) h + z (W u + b), z = σ̂(V u + c) (Feng et al. 2024, minGRU)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.maps = nn.Linear(size, 2 * size)
        self.size = size

    def forward(self, u: Float[Tensor, "T B H"]) -> Float[Tensor, "T B H"]:
        """Run over time from zero."""
        gate, value = self.maps(u).chunk(2, dim=-1)
        start = u.new_zeros(u.shape[1], u.shape[2])
        return gated_scan(-gate.contiguous(), value.contiguous(), start, u.new_zeros(self.size))[0]


class LRU(nn.Module):
    """s ← λ s + γ B u, λ = e^{−e^ν + i e^θ}, γ = √(1 − |λ|²), output Re(C s) + D u (Orvieto et al. 2023)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        radius = torch.sqrt(0.81 + (0.998 - 0.81) * torch.rand(size))
        self.log_decay = nn.Parameter(torch.log(-torch.log(radius)))
        self.log_angle = nn.Parameter(torch.log(2 * math.pi * torch.rand(size).clamp(min=1e-3)))
        self.read = nn.Linear(size, 2 * size, bias=False)
        self.write = nn.Linear(2 * size, size, bias=False)
        self.direct = nn.Parameter(torch.randn(size))

    def poles(self) -> tuple[Float[Tensor, " H"], Float[Tensor, " H"], Float[Tensor, " H"]]:
        """Return decay, angle and the scale of the drive."""
        decay = torch.exp(self.log_decay)
        return decay, torch.exp(self.log_angle), torch.sqrt(-torch.expm1(-2 * decay))

    def forward(self, u: Float[Tensor, "T B H"]) -> Float[Tensor, "T B H"]:
        """Run over time from zero."""
        decay, angle, scale = self.poles()
        power = torch.exp(-decay) * torch.stack([torch.cos(angle), torch.sin(angle)])
        real, imaginary = self.read(u).chunk(2, dim=-1)
        # Real and imaginary part of s, from real and imaginary drives: the scan is linear.
        first, second = (torch.stack([a * scale, b * scale])[:, None, None] for a, b in ((1, 0), (0, 1)))
        parts = []
        for readout in torch.eye(2, device=u.device)[:, :, None].expand(-1, -1, len(decay)):
            start = u.new_zeros(u.shape[1], 2 * len(decay))
            along, across = (
                damped_scan(drive.contiguous(), start, power[:, None, None], gain, readout)[0]
                for drive, gain in ((real, first), (imaginary, second))
            )
            parts.append(along + across)
        return self.write(torch.cat(parts, -1)) + self.direct * u


class LinOSS(nn.Module):
    """y″ = −A y + B u, each unit a rotation that keeps its energy; output C (y, y′) + D u (Rusch and Rus 2025)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.stiffness, self.step = nn.Parameter(torch.rand(size)), nn.Parameter(torch.rand(size) - 2)
        self.read, self.write = nn.Linear(size, size, bias=False), nn.Linear(2 * size, size, bias=False)
        self.direct = nn.Parameter(torch.randn(size))

    def forward(self, u: Float[Tensor, "T B H"]) -> Float[Tensor, "T B H"]:
        """Run over time from zero, exactly for a held input; a rotation by Δt √A per step."""
        angle = torch.sigmoid(self.step) * torch.sqrt(self.stiffness.abs() + 1e-6)
        power = torch.stack([torch.cos(angle), torch.sin(angle)])[:, None, None]
        gain = torch.stack([torch.zeros_like(angle), torch.sigmoid(self.step)])[:, None, None]
        start, drive = u.new_zeros(u.shape[1], 2 * len(angle)), self.read(u)
        eye = torch.eye(2, device=u.device)[:, :, None].expand(-1, -1, len(angle))
        return self.write(torch.cat([damped_scan(drive, start, power, gain, c)[0] for c in eye], -1)) + self.direct * u


class Blocks(nn.Module):
    """An encoder, then blocks: norm, unit, GELU, gated linear map, residual (the block of S5 and LRU)."""

    def __init__(self, channels: int, size: int, unit: Callable[[int], nn.Module], depth: int = 3) -> None:
        super().__init__()
        self.encoder = nn.Linear(channels, size)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(depth))
        self.units = nn.ModuleList(unit(size) for _ in range(depth))
        self.gates = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(depth))

    def forward(self, x: Float[Tensor, "T B C"]) -> tuple[Float[Tensor, "T B H"], None]:
        """Return the output of the last block, and no state."""
        u = self.encoder(x)
        for norm, unit, gate in zip(self.norms, self.units, self.gates, strict=True):
            u = u + F.glu(gate(F.gelu(unit(norm(u)))), -1)
        return u, None
