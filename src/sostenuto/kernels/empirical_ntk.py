"""The tangent kernel of a network as it is: inner products of its gradients, at any width and any point of training."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from sostenuto.checks import check_choice, check_count, require
from sostenuto.kernels.base import Diagonal, Matrix, SequenceKernel, Steps

BUDGET = 2**28
"""Bytes of the gradients held of one side."""


class EmpiricalNTK(SequenceKernel):
    """Compare sequences by a model's gradients: Θ̂(x, y) = (1/d) Σ_k ⟨∇_θ f_k(x), ∇_θ f_k(y)⟩ over its d outputs.

    For one output it is the kernel that gradient descent follows at this θ (alemohammad2021, section 2); with several,
    the mean of the diagonal blocks, which is what Θ ⊗ I_d has there. Everything runs in float64. Where more than one
    step comes out, the last is taken.

    Args:
        model: a module from ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``; recurrent layers
            that return ``(output, state)`` too. It is read when the kernel is called, so a kernel follows training;
            cloning shares it.
        method: ``"vmap"`` maps the Jacobian over a chunk of sequences; ``"loop"`` differentiates one after the other,
            for models that cannot be mapped.
        chunk: sequences mapped at once.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 1))
    >>> EmpiricalNTK(model)([[1.0, 2.0], [3.0, 4.0]])  # f(x) = w·x + b: ⟨x, y⟩ + 1
    array([[ 6., 12.],
           [12., 26.]])
    """

    def __init__(self, model: nn.Module, *, method: str = "vmap", chunk: int = 16) -> None:
        self.model, self.method, self.chunk = model, method, chunk
        self.check_parameters()

    def check_parameters(self) -> None:
        """Refuse what is not a model with something to learn."""
        require(isinstance(self.model, nn.Module), "expected model to be a torch module", f"got {type(self.model)}")
        require(any(p.requires_grad for p in self.model.parameters()), "expected a model with parameters", "got none")
        check_choice("method", self.method, ("vmap", "loop"))
        check_count("chunk", self.chunk)

    def gram(self, left: list[Steps], right: list[Steps]) -> Matrix:
        """Return ⟨∇f(x), ∇f(y)⟩ of every pair, gradients of one side held at a time."""
        matrix = np.zeros((len(left), len(right)))
        for rows, ours in self._jacobians(left):
            for columns, theirs in (
                [(rows, ours)] if right is left and len(rows) == len(left) else self._jacobians(right)
            ):
                block = torch.einsum("ikp,jkp->ij", ours, theirs) / ours.shape[1]
                matrix[np.ix_(rows, columns)] = block.numpy()
        return matrix

    def gradients(self, sequences: list[Steps], names: list[str]) -> tuple[Matrix, dict[str, np.ndarray]]:
        """Return K; there is nothing to fit."""
        return self.gram(sequences, sequences), dict.fromkeys(names, np.empty(0))

    def diagonal(self, sequences: list[Steps]) -> Diagonal:
        """Return ‖∇f(x)‖² / d."""
        diagonal = np.zeros(len(sequences))
        for rows, jacobian in self._jacobians(sequences):
            diagonal[rows] = (torch.einsum("ikp,ikp->i", jacobian, jacobian) / jacobian.shape[1]).numpy()
        return diagonal

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EmpiricalNTK):
            return NotImplemented
        return (self.model is other.model) and (self.method, self.chunk) == (other.method, other.chunk)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __sklearn_clone__(self) -> "EmpiricalNTK":
        return EmpiricalNTK(self.model, method=self.method, chunk=self.chunk)

    def __repr__(self) -> str:
        return f"EmpiricalNTK({type(self.model).__name__}, method={self.method!r}, chunk={self.chunk})"

    def _jacobians(self, sequences: list[Steps]) -> Iterator[tuple[list[int], Tensor]]:
        """Yield indices and Jacobians (sequence, output, parameter), as many at a time as the budget holds."""
        held: list[tuple[list[int], Tensor]] = []
        size = 0
        for indices in self._chunks(sequences):
            x = torch.from_numpy(np.stack([sequences[index] for index in indices]))
            jacobian = self._jacobian(x)
            held.append((indices, jacobian))
            size += jacobian.numel() * 8
            if size > BUDGET:
                yield [i for part, _ in held for i in part], torch.cat([part for _, part in held])
                held, size = [], 0
        if held:
            yield [i for part, _ in held for i in part], torch.cat([part for _, part in held])

    def _chunks(self, sequences: list[Steps]) -> Iterator[list[int]]:
        groups: dict[int, list[int]] = {}
        for index, sequence in enumerate(sequences):
            groups.setdefault(len(sequence), []).append(index)
        for indices in groups.values():
            yield from (indices[at : at + self.chunk] for at in range(0, len(indices), self.chunk))

    def _jacobian(self, x: Tensor) -> Tensor:
        learned = {k: p.detach().double() for k, p in self.model.named_parameters() if p.requires_grad}
        fixed = {k: p.detach() for k, p in self.model.named_parameters() if not p.requires_grad}
        fixed |= dict(self.model.named_buffers())
        fixed = {k: v.double() if v.is_floating_point() else v for k, v in fixed.items()}

        def outputs(parameters: dict[str, Tensor], sequence: Tensor) -> Tensor:
            output: Any = functional_call(self.model, (parameters, fixed), (sequence[None],))
            output = (output[0] if isinstance(output, tuple) else output)[0]
            return (output[-1] if output.ndim > 1 else output).reshape(-1)

        was_training = self.model.training
        self.model.eval()
        try:
            derivative = jacrev(outputs)
            parts = (
                vmap(derivative, (None, 0))(learned, x)
                if self.method == "vmap"
                else _stacked([derivative(learned, sequence) for sequence in x])
            )
        finally:
            self.model.train(was_training)
        return torch.cat([part.flatten(2) for part in parts.values()], dim=2).detach()


def _stacked(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
