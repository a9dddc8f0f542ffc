"""The fused block as one function of autograd: what is saved, how it is differentiated."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from sostenuto.ops.backend import kernels_of, native_backend
from sostenuto.ops.damped_block.reference import BlockWeights, damped_block_reference
from sostenuto.ops.dispatch import recorded_gradients, run_adjoint

_kernels = partial(kernels_of, "sostenuto.ops.damped_block")


def run_block(inputs: Tensor, start: Tensor, lengths: Tensor | None, weights: BlockWeights) -> tuple[Tensor, Tensor]:
    """Run the kernels of the device; on the CPU nothing is kept where no gradient is wanted."""
    read = inputs, start, *weights
    recorded = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in read)
    if recorded or native_backend(start) != "cpu":
        return Block.apply(inputs, start, lengths, *weights)  # pyright: ignore[reportReturnType]
    outputs, last, _ = _kernels(start).forward(inputs, start, weights, lengths, keep=False)
    return outputs, last


class Block(torch.autograd.Function):
    """The block in eager code; a gradient that is differentiated again is the reference's."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, start: Tensor, lengths: Tensor | None, *weights: Any
    ) -> tuple[Tensor, Tensor]:
        """Run the kernels of the device and save what the backward pass needs."""
        outputs, last, kept = _kernels(start).forward(inputs, start, BlockWeights(*weights), lengths)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs, start, lengths, *weights, *kept)
        return outputs, last

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Run the adjoint, or the reference where the gradient is differentiated again."""
        inputs, start, lengths, *others = ctx.saved_tensors
        count = len(BlockWeights._fields)
        weights, kept = BlockWeights(*others[:count]), tuple(others[count:])
        if torch.is_grad_enabled():
            results = damped_block_reference(inputs, start, weights, lengths)
            d_inputs, d_start, *found = recorded_gradients(results, (inputs, start, *weights), gradients)
            return d_inputs, d_start, None, *found
        arriving, ending = gradients
        arriving = start.new_zeros(()).expand(inputs.shape) if arriving is None else arriving
        ending = start.new_zeros(start.shape) if ending is None else ending
        if arriving.stride(0) == 0:
            arriving = arriving[:1]  # the same at every step, as where outputs are summed

        def adjoint(arriving: Tensor, ending: Tensor) -> tuple[Any, ...]:
            d_inputs, d_start, found = _kernels(start).backward(
                inputs, start, weights, lengths, kept, arriving.contiguous(), ending.contiguous()
            )
            return d_inputs, d_start, *found

        d_inputs, d_start, *found = run_adjoint(adjoint, arriving, ending)
        pairs = zip(found, weights, strict=True)
        return d_inputs, d_start, None, *(None if weight is None else gradient for gradient, weight in pairs)
