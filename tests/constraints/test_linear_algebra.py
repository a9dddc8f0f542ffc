"""What a graph for ONNX computes by products alone, against torch's own linear algebra."""

import pytest
import torch

from sostenuto.constraints import linear_algebra


def close(got, expected, tolerance):
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance * float(expected.abs().max()))


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("size", [1, 2, 17, 64])
def test_inverse_by_products(size, condition):
    left, right = (torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))[0] for _ in range(2))
    values = torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), size, dtype=torch.float64)
    matrix = left @ torch.diag(values) @ right
    close(linear_algebra._inverse(matrix), torch.linalg.inv(matrix), 1e-14 * condition * size)


@pytest.mark.parametrize("norm", [0.0, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("size", [1, 2, 17, 64])
def test_exponential_by_products(size, norm):
    upper = torch.randn(size, size, dtype=torch.float64).triu(1)
    skew = norm * (upper - upper.mT) / max(size**0.5, 1)
    close(linear_algebra._exponential(skew), torch.linalg.matrix_exp(skew), 1e-12)


@pytest.mark.parametrize("size", [2, 4, 16, 34])
def test_eigenvalues_by_rotations(size):
    matrix = torch.randn(size, size, dtype=torch.float64)
    for symmetric in (matrix + matrix.mT, torch.eye(size).double(), torch.ones(size, size).double()):
        constants = linear_algebra._pairing(symmetric)
        square, vectors = symmetric, constants[0]
        for _ in range(linear_algebra.SWEEPS * (size - 1)):
            square, vectors = linear_algebra._turned(square, vectors, *constants)
        values = square.diagonal()
        close((vectors * values) @ vectors.mT, symmetric, 1e-12)
        close(values.sort().values, torch.linalg.eigvalsh(symmetric), 1e-12)
        close(vectors @ vectors.mT, constants[0], 1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_every_dtype_is_solved_and_exponentiated(dtype):
    matrix, right = torch.eye(3, dtype=dtype) * 2, torch.ones(3, 2, dtype=dtype)
    solved, raised = linear_algebra.solve(matrix, right), linear_algebra.matrix_exp(0 * matrix)
    assert solved.dtype == raised.dtype == dtype
    torch.testing.assert_close(solved, right / 2)
    torch.testing.assert_close(raised, torch.eye(3, dtype=dtype))
