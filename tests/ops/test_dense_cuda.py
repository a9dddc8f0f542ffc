"""The dense scan on a GPU against the reference in float64: programs that wait for each other run nowhere else."""

import pytest
import torch

from sostenuto.ops.dense import dense_scan
from sostenuto.ops.dense.reference import dense_scan_reference

pytestmark = pytest.mark.gpu(interpreted=False)
CASES = [
    (50, 17, 20, "full"), (1, 9, 16, "full"), (50, 128, 128, "full"), (50, 128, 128, "two"), (50, 30, 256, "full"),
    (50, 128, 256, "scalar"), (50, 128, 200, "two"), (40, 33, 256, "all"), (40, 128, 512, "full"),
    (30, 600, 64, "full"),
]  # fmt: skip


def tensors(steps: int, batch: int, hidden: int, kind: str) -> list[torch.Tensor]:
    torch.manual_seed(steps)
    k = 2 if kind == "two" else 1
    weight, one = torch.randn(hidden, k * hidden) / hidden**0.5, torch.eye(hidden)
    linear = {"two": torch.tensor([[0.995, 0.042], [-0.113, 0.9]]), "scalar": torch.ones(1, 1)}.get(
        kind, one + 0.03 * torch.randn(hidden, hidden) / hidden**0.5
    )
    gain = {"two": torch.tensor([0.002, 0.042]), "all": 0.03 * one + 0.01 * torch.randn(hidden, hidden) / hidden}.get(
        kind, torch.full((1,), 0.03)
    )
    # mostly of one sign, so that the sums over everything that are the coefficients' gradients do not cancel
    return [1 + torch.randn(steps, batch, hidden), 0.3 * torch.rand(batch, k * hidden), weight, linear, gain]


@pytest.mark.parametrize(("precision", "limit"), [("exact", 3e-5), ("tf32", 3e-3)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case, precision, limit):
    values = [value.cuda() for value in tensors(*case)]
    results = []
    for dtype, scan, options in (
        (torch.float32, dense_scan, {"precision": precision, "backend": "gpu"}),
        (torch.float64, dense_scan_reference, {}),
    ):
        leaves = [value.to(dtype).requires_grad_() for value in values]
        states, last = scan(*leaves, **options)
        weights = torch.linspace(0.5, 1.5, states.numel(), device="cuda", dtype=dtype).view_as(states)
        results.append([states, last, *torch.autograd.grad((states * weights).sum() + last.sum(), leaves)])
    for index, (found, truth) in enumerate(zip(*results, strict=True)):
        error = ((found.double() - truth).abs().max() / truth.abs().max()).item()
        assert error < limit, (index, error)


def test_not_a_number_travels_and_nothing_waits_forever():
    values = [value.cuda() for value in tensors(20, 24, 256, "full")]
    values[0][5, 3, 7] = float("nan")
    states, last = dense_scan(*values, precision="tf32", backend="gpu")
    assert last[3].isnan().all()
    assert last[[0, 1, 2, *range(4, 24)]].isfinite().all()
    assert states[:5].isfinite().all()
