import torch

from sostenuto.kernels import RecurrentNTK
from tests.laws.kernel_laws import KernelLaws


class TestRecurrentNTK(KernelLaws):
    kernels = (
        RecurrentNTK(),
        RecurrentNTK(2, "erf", sigma_w=(1.2, 0.8), sigma_b=0.3, sigma_h=0.5, normalize=True),
        RecurrentNTK(sigma_b=0.1, sigma_h=0.2, pooling="mean", kind="nngp"),
        RecurrentNTK(1, torch.tanh, sigma_u=0.5, sigma_b=0.2),
    )
