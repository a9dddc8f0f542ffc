import pytest
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from sostenuto.nn import IndRNN
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import SIGMAS, assert_same, count

F64 = torch.float64


class TestIndRNN(LayerLaws):
    cls = IndRNN
    options = {"activation": "tanh"}
    refused = ({"activation": "gelu"}, {"stacking": "tree"})
    continuous = False


@pytest.mark.parametrize("activation", SIGMAS)
def test_equals_a_plain_loop(activation):
    layer = IndRNN(3, 5, activation=activation, dtype=F64)

    def step(u, h):
        return (SIGMAS[activation](layer.weight_hh_l0 * h + u @ layer.weight_ih_l0.T + layer.bias_ih_l0),)

    assert_same(layer, torch.randn(40, 2, 3, dtype=F64), step)


def test_equals_torchrecurrent():
    torchrecurrent = pytest.importorskip("torchrecurrent")
    """Theirs has a second bias, which is zero here, and draws w from a normal distribution."""
    layer = IndRNN(3, 5, activation="tanh", dtype=F64)
    theirs = torchrecurrent.IndRNN(3, 5, dtype=F64)
    cell = theirs.cells[0]
    with torch.no_grad():
        cell.weight_ih.copy_(layer.weight_ih_l0)
        cell.vector_u.copy_(layer.weight_hh_l0)
        cell.bias_ih.copy_(layer.bias_ih_l0)
        cell.bias_hh.zero_()
    x = torch.randn(12, 2, 3, dtype=F64)
    torch.testing.assert_close(layer(x)[0], theirs(x)[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_stacks(bidirectional):
    options = {"num_layers": 3, "bidirectional": bidirectional, "activation": "tanh", "dtype": F64}
    x, wide = torch.randn(6, 2, 3, dtype=F64), 8 if bidirectional else 4
    dense = IndRNN(3, 4, stacking="dense", **options)
    assert [getattr(dense, f"weight_ih_l{n}").shape[1] for n in range(3)] == [3, 3 + wide, 3 + 2 * wide]
    plain, residual = IndRNN(3, 4, **options), IndRNN(3, 4, stacking="residual", **options)
    residual.load_state_dict(plain.state_dict())
    below = x
    for n in range(3):
        one = IndRNN(below.shape[-1], 4, activation="tanh", bidirectional=bidirectional, dtype=F64)
        one.load_state_dict({k.replace(f"_l{n}", "_l0"): v for k, v in plain.state_dict().items() if f"_l{n}" in k})
        below = one(below)[0] + (below if n else 0)
    torch.testing.assert_close(residual(x)[0], below)
    read = [x]
    for n in range(3):
        one = IndRNN(3 + n * wide, 4, activation="tanh", bidirectional=bidirectional, dtype=F64)
        one.load_state_dict({k.replace(f"_l{n}", "_l0"): v for k, v in dense.state_dict().items() if f"_l{n}" in k})
        read.append(one(torch.cat(read, dim=-1))[0])
    torch.testing.assert_close(dense(x)[0], read[-1])


def test_batch_norm_is_torchs_over_steps_and_sequences():
    layer = IndRNN(3, 4, batch_norm=True, dtype=F64)
    norm = torch.nn.BatchNorm1d(4, dtype=F64)
    plain = IndRNN(4, 4, dtype=F64)
    with torch.no_grad():
        layer.norm_scale_l0.uniform_(0.5, 2)
        layer.bias_ih_l0.normal_()
        norm.weight.copy_(layer.norm_scale_l0)
        norm.bias.copy_(layer.bias_ih_l0)
        plain.weight_ih_l0.copy_(torch.eye(4))
        plain.weight_hh_l0.copy_(layer.weight_hh_l0)
    for _ in range(3):
        x = torch.randn(6, 2, 3, dtype=F64)
        for each in (layer, norm):
            each.train()
        expected = plain(norm((x @ layer.weight_ih_l0.T).flatten(0, 1)).unflatten(0, (6, 2)))[0]
        torch.testing.assert_close(layer(x)[0], expected)
        for each in (layer, norm):
            each.eval()
        expected = plain(norm((x @ layer.weight_ih_l0.T).flatten(0, 1)).unflatten(0, (6, 2)))[0]
        torch.testing.assert_close(layer(x)[0], expected)
    assert {"norm_mean_l0", "norm_variance_l0"} <= set(layer.state_dict())


def test_batch_norm_leaves_padding_out():
    layer = IndRNN(2, 4, batch_norm=True, dtype=F64)
    sequences = [torch.randn(n, 2, dtype=F64) for n in (5, 2, 7)]
    layer(pack_sequence(sequences, enforce_sorted=False))
    found = (torch.cat(sequences) @ layer.weight_ih_l0.T).mean(0)
    torch.testing.assert_close(layer.norm_mean_l0, 0.1 * found)
    layer.eval()
    output, lengths = pad_packed_sequence(layer(pack_sequence(sequences, enforce_sorted=False))[0])
    for b, sequence in enumerate(sequences):
        torch.testing.assert_close(output[: lengths[b], b], layer(sequence)[0])


def test_parameters_and_their_start():
    assert count(IndRNN(3, 10)) == 10 * (3 + 2)
    assert count(IndRNN(3, 10, batch_norm=True)) == 10 * (3 + 3)
    weight = IndRNN(3, 1000).weight_hh_l0
    assert 0 <= weight.min() < 0.01
    assert 0.99 < weight.max() <= 1


def test_certificates():
    layer = IndRNN(1, 4)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.tensor([0.9, -0.5, 0.0, 0.2]))
    assert layer.certificate("discrete").rate == pytest.approx(-torch.tensor(0.9).log().item(), rel=1e-6)
    with torch.no_grad():
        layer.weight_hh_l0[1] = -1.01
    assert not layer.certificate("discrete").holds
    assert "discrete map" in layer.certificate("lure").reason


def test_an_empty_batch_leaves_the_running_statistics():
    layer = IndRNN(2, 4, batch_norm=True).train()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert layer(torch.zeros(5, 0, 2))[0].shape == (5, 0, 4)
    for name, value in layer.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
