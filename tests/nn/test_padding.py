import pytest
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from sostenuto.nn import LAYERS, IndRNN, LipschitzRNN
from sostenuto.nn.fused import run_by_stretches, states_at_ends
from tests.laws.layer_laws import as_tuple

F64 = torch.float64
LENGTHS = (3, 7, 1, 7, 5)
OURS = {name: LAYERS[name] for name in LAYERS if name not in ("lstm", "gru", "rnn")}


def recurrence(drive, start):
    states = []
    for z in drive:
        start = 1.5 * start + torch.tanh(start + z)
        states.append(start)
    return torch.stack(states)


def test_stretches_are_each_sequence_alone():
    drive, start, lengths = torch.randn(8, 5, 2, dtype=F64), torch.randn(5, 2, dtype=F64), torch.tensor(LENGTHS)
    states, ends = run_by_stretches(recurrence, drive, start, lengths)
    for b, length in enumerate(LENGTHS):
        alone = recurrence(drive[:length, b : b + 1], start[b : b + 1])
        torch.testing.assert_close(states[:length, b], alone[:, 0])
        torch.testing.assert_close(ends[b], alone[-1, 0])
        assert not states[length:, b].any()
    torch.testing.assert_close(ends, states_at_ends(recurrence(drive, start), lengths))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", OURS)
def test_gradients_of_a_packed_batch_are_those_of_its_sequences(name, bidirectional):
    layer = OURS[name](2, 4, num_layers=2, bidirectional=bidirectional, dtype=F64)
    sequences = [torch.randn(n, 2, dtype=F64, requires_grad=True) for n in LENGTHS]
    weights = [torch.randn(n, layer.output_size, dtype=F64) for n in LENGTHS]
    parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]

    def loss(outputs, states):
        read = sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
        return read + sum(part.sin().sum() for state in states for part in as_tuple(state))

    packed, state = layer(pack_sequence(sequences, enforce_sorted=False))
    values, _ = pad_packed_sequence(packed)
    together = loss([values[:n, b] for b, n in enumerate(LENGTHS)], [state])
    alone = [layer(sequence) for sequence in sequences]
    apart = loss([output for output, _ in alone], [state for _, state in alone])
    got = torch.autograd.grad(together, [*parameters, *sequences])
    expected = torch.autograd.grad(apart, [*parameters, *sequences])
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("cls", [LipschitzRNN, IndRNN])
def test_a_state_that_overflows_in_the_padding_does_no_harm(cls):
    """The short sequence is long over when its row of the block reaches infinity; its gradients stay what they are."""
    layer = cls(1, 2, num_layers=2, dtype=F64)
    with torch.no_grad():
        if cls is LipschitzRNN:
            layer.free_weight("weight_linear", 0, False).copy_(1e7 * torch.eye(2))
        else:
            layer.weight_hh_l0.fill_(1e7)
    short, quiet = torch.ones(2, 1, dtype=F64), torch.zeros(80, 1, dtype=F64)
    with torch.no_grad():
        quiet_start = torch.zeros(2, 2, 2, dtype=F64)
    layer.bias_ih_l0.data.zero_()
    packed, _ = layer(pack_sequence([quiet, short]), quiet_start)
    output, _ = pad_packed_sequence(packed)
    got = torch.autograd.grad(output[:2, 1].sum(), list(layer.parameters()))
    expected = torch.autograd.grad(layer(short)[0].sum(), list(layer.parameters()))
    for one, other in zip(got, expected, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other)


def test_packed_sequences_take_the_scan():
    layer = LipschitzRNN(2, 3)
    layer(pack_sequence([torch.randn(4, 2), torch.randn(3, 2)]))
    assert layer.backend_used == "scan"
    layer(torch.randn(4, 1, 2), timespans=torch.ones(4, 1))
    assert layer.backend_used == "steps"
