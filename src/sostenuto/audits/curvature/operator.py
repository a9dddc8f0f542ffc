"""The Hessian of a model's mean loss in its weights, as products with vectors."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from sostenuto.audits.batches import EvalBatch
from sostenuto.audits.clock import clock_of
from sostenuto.checks import InputError, require

Vector = Float[np.ndarray, " weight"]


class Hessian:
    """Multiplies vectors by ∂²L/∂w², L the mean loss over the sequences (or over their true steps).

    ``parameters`` are the weights that learn. A product is the derivative of ⟨∂L/∂w, v⟩, batch by batch: two backward
    passes, which every differentiable model allows, while tracing it as a function of its weights would shut out models
    with compiled recurrences. Where all sequences fit one batch, ``keeps`` says so, and the first pass serves every
    product until a weight changes.
    """

    def __init__(self, model: nn.Module, data: EvalBatch, batch_size: int) -> None:
        self._model, self.data, self._batch_size = model, data, batch_size
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.size = sum(parameter.numel() for parameter in self.parameters)
        with torch.enable_grad():
            part = self.part(next(data.batches(batch_size)))  # a model that cannot answer is refused for that
        loss = float(part.detach())
        learns = self.size > 0 and part.requires_grad
        require(learns, "expected a model with weights that learn, and a loss that depends on them", "got none")
        self.keeps = len(data.values) <= batch_size
        self._kept: tuple[list[int], tuple[Tensor, ...]] | None = None
        self.clock, self.deadline = clock_of(model), math.inf
        require(math.isfinite(loss), "expected a finite loss", f"got {loss}", "look for NaN in the model's answers")

    def loss(self) -> float:
        """Give the loss at the weights as they are."""
        with torch.no_grad():
            return sum(float(self.part(rows)) for rows in self.data.batches(self._batch_size))

    def gradient(self) -> Vector:
        """Give ∂L/∂w."""
        total = np.zeros(self.size)
        for rows in self.data.batches(self._batch_size):
            with torch.enable_grad():
                loss = self.part(rows)
                if loss.requires_grad:
                    parts = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
                    total += torch.cat([part.flatten() for part in parts]).double().cpu().numpy()
        return total

    def product(self, vector: Vector) -> Vector:
        """Multiply one vector."""
        if self.clock() > self.deadline:
            raise InputError("expected the Hessian's products to keep to their estimate, got more; allow more time.")
        tensor = torch.from_numpy(np.ascontiguousarray(vector)).to(self.parameters[0])
        sizes = [parameter.numel() for parameter in self.parameters]
        parts = [part.view_as(p) for part, p in zip(tensor.split(sizes), self.parameters, strict=True)]
        total = np.zeros(self.size)
        for rows in self.data.batches(self._batch_size):
            with torch.enable_grad():
                first = self._slopes(rows)
                along = sum((gradient * part).sum() for gradient, part in zip(first, parts, strict=True))
                if not (isinstance(along, Tensor) and along.requires_grad):
                    continue
                second = torch.autograd.grad(along, self.parameters, retain_graph=self.keeps, materialize_grads=True)
            total += torch.cat([gradient.flatten() for gradient in second]).double().cpu().numpy()
        return total

    def _slopes(self, rows: slice) -> tuple[Tensor, ...]:
        """Give the gradient of one batch with the graph of how it came about, the kept one if weights did not move."""
        now = [parameter._version for parameter in self.parameters]
        if self._kept is not None and self._kept[0] == now:
            return self._kept[1]
        self._kept = None  # frees the old graph before the new one is built
        found = torch.autograd.grad(self.part(rows), self.parameters, create_graph=True, materialize_grads=True)
        if self.keeps:
            self._kept = now, found
        return found

    def dense(self) -> Float[np.ndarray, "weight weight"]:
        """Give the whole matrix, symmetrized; for few weights only."""
        whole = np.stack([self.product(row) for row in np.eye(self.size)])
        return (whole + whole.T) / 2

    def extremes(self, wanted: int, start: Vector, *, both: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Find the largest eigenvalues and their unit eigenvectors by ARPACK, largest first.

        With ``both`` the least follow, one fewer, or one: the same products serve either end.
        """
        whole: Any = LinearOperator
        operator = whole((self.size, self.size), matvec=self.product, dtype=np.float64)
        tolerance: Any = 1e-4
        pairs: Any
        try:
            if both:
                pairs = eigsh(operator, k=max(2 * wanted - 1, 2), which="BE", v0=start, tol=tolerance)
            else:
                pairs = eigsh(operator, k=wanted, which="LA", v0=start, tol=tolerance)
        except ArpackNoConvergence as error:
            raise InputError(
                f"expected the eigenvalues of the Hessian to settle, got none after many products: {self.size} weights "
                "of a loss that may be flat or not smooth."
            ) from error
        values, vectors = pairs
        order = np.argsort(-values)
        return values[order], vectors[:, order]

    def part(self, rows: slice) -> Float[Tensor, ""]:
        """Give what one batch adds to the mean loss."""
        data = self.data
        scores = data.scores(self._model, rows, data.values[rows])
        return data.losses(scores, rows).sum() / len(data.true_targets)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Switch the fused kernels of recurrences and attention off, which have no second derivative."""
    with warnings.catch_warnings():
        # torch speaks of Intel GPUs whenever these flags are set, and there is no other way to set one of them.
        warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")
        with (
            torch.backends.cudnn.flags(enabled=False),
            torch.backends.mkldnn.flags(enabled=False),
            sdpa_kernel(SDPBackend.MATH),
        ):
            yield


def saved_bytes(hessian: "Hessian", rows: slice) -> int:
    """Count the bytes that the loss of some rows keeps for its gradient."""
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hessian.part(rows)
    return sum(sizes.values())


def waiting_bytes(hessian: "Hessian", rows: slice) -> int:
    """Count the bytes of a weight's gradients, one for each time that it is used.

    In a product autograd turns to the nodes of the first pass last, so that the parts that all steps of a recurrence
    give to its weights' gradients wait side by side to be added.
    """
    with torch.enable_grad():
        start = hessian.part(rows).grad_fn
    waiting, seen, total = [start], {start}, 0
    while waiting:
        node = waiting.pop()
        for following, _ in () if node is None else node.next_functions:
            weight = getattr(following, "variable", None)
            total += 0 if weight is None else weight.numel() * weight.element_size()
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return total
