"""A stack of damped oscillators on a GPU, where a block is one op, against the same stack on the CPU."""

import copy

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from sostenuto.nn import Stack
from tests.laws.op_laws import GPU

pytestmark = pytest.mark.gpu(interpreted=False)


def differentiated(layer, x, lengths, weight):
    given = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
    output, states = layer(given)
    output = output if lengths is None else output.data
    results = [output, *states]
    leaves = [x, *layer.parameters()]
    loss = (output.flatten() * weight.to(output)[: output.numel()]).sum() + sum(state.sum() for state in states)
    return [part.double().cpu() for part in (*results, *torch.autograd.grad(loss, leaves))]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"half_life": 20.0}, {"bias": False}])
def test_is_the_stack_on_the_cpu(options, ragged):
    torch.manual_seed(0)
    layer = Stack(5, 17, num_layers=2, device=GPU, **options)
    on_cpu = copy.deepcopy(layer).cpu()
    x, weight = torch.randn(40, 6, 5), torch.randn(40 * 6 * 2 * 17)
    lengths = torch.tensor([40, 3, 17, 1, 40, 22]) if ragged else None
    found = differentiated(layer, x.to(GPU).requires_grad_(), lengths, weight)
    truth = differentiated(on_cpu, x.clone().requires_grad_(), lengths, weight)
    for one, other in zip(found, truth, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 5e-5 * other.abs().max().clamp(min=1e-3)
