"""The continuous-time limit of a network, solved to rounding, and the step methods that a network can be.

X is the piecewise linear path from the origin through x_1 … x_T at the times j/T, as everywhere in fermanian2021.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sostenuto.checks import InputError, check_choice, check_positive
from sostenuto.theory.tensor_field import TensorField, tensor_field

COLUMNS = 12
"""Extrapolation columns before a segment is halved instead."""

HALVINGS = 20

TABLEAUS = {
    "euler": (((),), (1.0,)),
    "midpoint": (((), (0.5,)), (0.0, 1.0)),
    "rk3": (((), (0.5,), (0.0, 0.75)), (2 / 9, 1 / 3, 4 / 9)),
    "rk4": (((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
}
"""Runge–Kutta methods with weights of one sign: rows of A below its diagonal, and b (rk3 is Ralston's)."""

ORDERS = {"residual": 1, "euler": 1, "midpoint": 2, "rk3": 3, "rk4": 4}
"""The order p of each step method."""


def solve(
    rnn: Any, path: Float[Tensor, "*batch time channel"], *, tolerance: float = 1e-14
) -> Float[Tensor, "*batch time hidden"]:
    """Solve dH = f(H, X) dt, H_0 = 0, and give H at every point of the path.

    Gragg's method extrapolated on each segment, where the solution is smooth, until two columns differ by at most
    ``tolerance`` relative to the state; a segment that does not settle is halved. Reference: fermanian2021, eq. (3).

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1), "identity")  # h′ = h + 1
    >>> abs(solve(field, torch.zeros(3, 1))[-1].item() - (torch.e - 1)) < 1e-14
    True
    """
    check_positive("tolerance", tolerance)
    field = tensor_field(rnn)
    points, step = path.to(field.like), field.duration / path.shape[-2]
    state = points.new_zeros(*points.shape[:-2], field.state_size)
    before, states = torch.zeros_like(points[..., 0, :]), []
    with torch.no_grad():
        for point in points.unbind(-2):
            state = _segment(field, state, before, point - before, step, tolerance)
            before = point
            states.append(state[..., : field.hidden_size])
    return torch.stack(states, dim=-2)


def discretize(
    rnn: Any, path: Float[Tensor, "*batch time channel"], *, method: str = "residual"
) -> Float[Tensor, "*batch time hidden"]:
    """Take T steps of size 1/T along the path by ``"residual"``, ``"euler"``, ``"midpoint"``, ``"rk3"`` or ``"rk4"``.

    ``"residual"`` is the network itself, h_{j+1} = h_j + f(h_j, x_{j+1})/T (fermanian2021, eq. (1)): Euler's method
    with the input taken at the end of the step. The others are Runge–Kutta methods, and networks too (section 5).

    >>> from sostenuto.theory.tensor_field import rnn_field
    >>> field = rnn_field(torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1), "identity")  # h′ = h + 1
    >>> discretize(field, torch.zeros(2, 1)).flatten().tolist()
    [0.5, 1.25]
    """
    check_choice("method", method, ORDERS)
    field = tensor_field(rnn)
    points, step = path.to(field.like), field.duration / path.shape[-2]
    state = points.new_zeros(*points.shape[:-2], field.state_size)
    before, states = torch.zeros_like(points[..., 0, :]), []
    for point in points.unbind(-2):
        if method == "residual":
            state = state + step * field.rate(state, point)
        else:
            state = state + step * _increment(field, state, before, point - before, step, method)
        before = point
        states.append(state[..., : field.hidden_size])
    return torch.stack(states, dim=-2)


def _increment(field: TensorField, state: Tensor, x: Tensor, move: Tensor, step: float, method: str) -> Tensor:
    rows, weights = TABLEAUS[method]
    stages: list[Tensor] = []
    for row in rows:
        inner = state
        for a, stage in zip(row, stages, strict=True):
            inner = inner + step * a * stage
        stages.append(field.rate(inner, x + sum(row) * move))
    return sum((b * stage for b, stage in zip(weights, stages, strict=True)), start=torch.zeros_like(state))


def _segment(
    field: TensorField, state: Tensor, x: Tensor, move: Tensor, step: float, tolerance: float, halvings: int = HALVINGS
) -> Tensor:
    """Cross one linear piece by extrapolating Gragg's midpoint rule in the square of the substep."""
    row: list[Tensor] = []
    for column in range(COLUMNS):
        previous, row = row, [_gragg(field, state, x, move, step, 2 * (column + 1))]
        for k, earlier in enumerate(previous):
            ratio = ((column + 1) / (column - k)) ** 2
            row.append(row[k] + (row[k] - earlier) / (ratio - 1))
        if previous:
            allowed = tolerance * (1 + row[-1].abs().amax())
            if float((row[-1] - previous[-1]).abs().amax() - allowed) <= 0:
                return row[-1]
    if halvings == 0:
        raise InputError("expected a solution that settles, got none after halving; is the field finite and smooth?")
    middle = _segment(field, state, x, move / 2, step / 2, tolerance, halvings - 1)
    return _segment(field, middle, x + move / 2, move / 2, step / 2, tolerance, halvings - 1)


def _gragg(field: TensorField, state: Tensor, x: Tensor, move: Tensor, step: float, count: int) -> Tensor:
    substep = step / count
    before, now = state, state + substep * field.rate(state, x)
    for j in range(1, count):
        before, now = now, before + 2 * substep * field.rate(now, x + (j / count) * move)
    return (before + now + substep * field.rate(now, x + move)) / 2
