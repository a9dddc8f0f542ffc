"""What every recurrent layer must do. A layer's test inherits `LayerLaws` and names how to make one."""

import copy
import inspect

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from sostenuto.checks import InputError
from tests.laws.layer_calls import CallLaws
from tests.laws.layer_tools import ToolLaws
from tests.laws.layer_transforms import TransformLaws

T, B, C, H = 7, 3, 2, 4


def as_tuple(state):
    return (state,) if isinstance(state, torch.Tensor) else tuple(state)


def assert_states_equal(got, expected):
    for one, other in zip(as_tuple(got), as_tuple(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


class LayerLaws(CallLaws, TransformLaws, ToolLaws):
    """Set ``cls`` (the layer) and ``options``; say what does not hold for it by the flags."""

    cls: type
    options: dict = {}
    refused: tuple = ()
    """Options that are refused by a message that names the first of them."""
    continuous = True
    variational_dropout = True
    streams = True

    def make(self, **options):
        return self.cls(C, H, **{**self.options, "dtype": torch.float64, **options})

    @pytest.fixture
    def x(self):
        return torch.randn(T, B, C, dtype=torch.float64)

    def start(self, layer, batch=B):
        rows = layer.num_layers * layer.num_directions
        parts = tuple(0.3 * torch.randn(rows, batch, H, dtype=torch.float64) for _ in layer.state_names)
        return parts[0] if len(parts) == 1 else parts

    def test_constructor_is_torchs(self):
        ours = list(inspect.signature(self.cls.__init__).parameters)
        if issubclass(self.cls, torch.nn.RNNBase):
            return
        assert ours[1:8] == [
            "input_size",
            "hidden_size",
            "num_layers",
            "bias",
            "batch_first",
            "dropout",
            "bidirectional",
        ]

    def test_bad_options_are_refused(self):
        for options in ({"dropout": 1.5}, *self.refused):
            with pytest.raises(ValueError, match=next(iter(options))):
                self.cls(1, 2, **options)

    @pytest.mark.parametrize("bidirectional", [False, True])
    @pytest.mark.parametrize("num_layers", [1, 2])
    def test_shapes(self, x, num_layers, bidirectional):
        layer = self.make(num_layers=num_layers, bidirectional=bidirectional)
        output, state = layer(x)
        assert output.shape == (T, B, layer.output_size)
        for part in as_tuple(state):
            assert part.shape == (num_layers * layer.num_directions, B, H)
        assert len(as_tuple(state)) == len(layer.state_names)

    def test_batch_first_is_a_transpose(self, x):
        layer = self.make(num_layers=2)
        other = self.make(num_layers=2, batch_first=True)
        other.load_state_dict(layer.state_dict())
        output, state = layer(x)
        turned, turned_state = other(x.transpose(0, 1))
        close(turned.transpose(0, 1), output)
        assert_states_equal(turned_state, state)

    def test_unbatched_is_a_batch_of_one(self, x):
        layer = self.make(num_layers=2, bidirectional=True)
        output, state = layer(x[:, :1])
        single, single_state = layer(x[:, 0])
        close(single, output[:, 0])
        assert_states_equal(single_state, tuple(part[:, 0] for part in as_tuple(state)))

    @pytest.mark.parametrize("lengths", [(7, 5, 2), (2, 7, 5), (1, 1, 1)])
    @pytest.mark.parametrize("bidirectional", [False, True])
    def test_packed_is_one_by_one(self, lengths, bidirectional):
        layer = self.make(num_layers=2, bidirectional=bidirectional)
        sequences = [torch.randn(n, C, dtype=torch.float64) for n in lengths]
        start = self.start(layer)
        packed, state = layer(pack_sequence(sequences, enforce_sorted=False), start)
        output, out_lengths = pad_packed_sequence(packed)
        assert out_lengths.tolist() == list(lengths)
        for b, sequence in enumerate(sequences):
            mine = tuple(part[:, b] for part in as_tuple(start))
            alone, alone_state = layer(sequence, mine[0] if len(mine) == 1 else mine)
            close(output[: lengths[b], b], alone)
            assert_states_equal(tuple(part[:, b] for part in as_tuple(state)), alone_state)

    def test_packed_sorted_keeps_its_form(self, x):
        layer = self.make()
        packed, _ = layer(pack_sequence([x[:5, 0], x[:2, 1]]))
        assert packed.sorted_indices is None
        assert packed.batch_sizes.tolist() == [2, 2, 1, 1, 1]

    def test_bidirectional_is_two_layers(self, x):
        both = self.make(bidirectional=True)
        forward, backward = self.make(), self.make()
        weights = both.state_dict()
        forward.load_state_dict({k: v for k, v in weights.items() if "_reverse" not in k})
        backward.load_state_dict({k.replace("_reverse", ""): v for k, v in weights.items() if "_reverse" in k})
        output, _ = both(x)
        close(output[..., :H], forward(x)[0])
        close(output[..., H:], backward(x.flip(0))[0].flip(0))

    def test_split_is_whole(self, x):
        if not self.streams:
            pytest.skip("the step depends on the length of the whole sequence")
        layer = self.make(num_layers=2)
        output, state = layer(x)
        first, middle = layer(x[:3])
        second, end = layer(x[3:], middle)
        close(torch.cat([first, second]), output)
        assert_states_equal(end, state)

    @pytest.mark.parametrize("batch_first", [False, True])
    def test_streaming_is_whole(self, x, batch_first):
        layer = self.make(num_layers=2, batch_first=batch_first)
        if not self.streams:
            with pytest.raises(InputError, match="step_size"):
                layer.step(x[0])
            return
        output, end = layer(x.transpose(0, 1) if batch_first else x)
        state, steps = None, []
        for x_t in x:
            step, state = layer.step(x_t, state)
            steps.append(step)
        close(torch.stack(steps), output.transpose(0, 1) if batch_first else output)
        assert_states_equal(state, end)

    def test_streaming_refuses_two_directions(self, x):
        with pytest.raises(InputError):
            self.make(bidirectional=True).step(x[0])

    def test_stack_is_layer_on_layer(self, x):
        stack, first = self.make(num_layers=2), self.make()
        second = self.cls(H, H, **{**self.options, "dtype": torch.float64})
        weights = stack.state_dict()
        first.load_state_dict({k: v for k, v in weights.items() if "_l0" in k})
        second.load_state_dict({k.replace("_l1", "_l0"): v for k, v in weights.items() if "_l1" in k})
        close(stack(x)[0], second(first(x)[0])[0])

    def test_dropout_is_one_mask_for_all_time(self):
        if not self.variational_dropout:
            pytest.skip("dropout is torch's own, drawn anew at every step")
        layer = self.make(num_layers=2, dropout=0.5)
        dropped = layer._drop(torch.ones(T, B, H, dtype=torch.float64))
        assert set(dropped.unique().tolist()) <= {0.0, 2.0}
        close(dropped, dropped[:1].expand_as(dropped))

    def test_no_dropout_in_eval_mode(self, x):
        layer = self.make(num_layers=2, dropout=0.5)
        assert not torch.equal(layer(x)[0], layer(x)[0])
        layer.eval()
        close(layer(x)[0], layer(x)[0])

    def test_dropout_of_one_layer_warns(self):
        with pytest.warns(UserWarning, match="dropout"):
            self.make(dropout=0.5)

    def test_state_dict_round_trip(self, x):
        layer, other = self.make(num_layers=2), self.make(num_layers=2)
        assert any(name.startswith("weight_ih_l0") for name in layer.state_dict())
        other.load_state_dict(layer.state_dict())
        close(other(x)[0], layer(x)[0])

    def test_reset_keeps_parameter_identity(self):
        layer = self.make()
        before = [id(parameter) for parameter in layer.parameters()]
        layer.reset_parameters()
        assert [id(parameter) for parameter in layer.parameters()] == before

    def test_copy_and_repr(self, x):
        layer = self.make(num_layers=2)
        close(copy.deepcopy(layer)(x)[0], layer(x)[0])
        assert self.cls.__name__ in repr(layer)
        assert "num_layers=2" in repr(layer)

    def test_gradients(self):
        layer = self.make(num_layers=2)
        x = torch.randn(4, 2, C, dtype=torch.float64, requires_grad=True)
        start = tuple(part.requires_grad_() for part in as_tuple(self.start(layer, batch=2)))
        names = [name for name, parameter in layer.named_parameters() if parameter.requires_grad]
        weights = [dict(layer.named_parameters())[name].detach().requires_grad_() for name in names]

        def run(x, *tensors):
            parts, values = tensors[: len(start)], tensors[len(start) :]
            state = parts[0] if len(parts) == 1 else parts
            named = dict(zip(names, values, strict=True))
            output, end = torch.func.functional_call(layer, named, (x, state))
            return (output, *as_tuple(end))

        # Along random directions of every input and output: the whole Jacobian would take some hundred runs.
        assert torch.autograd.gradcheck(run, (x, *start, *weights), atol=1e-6, fast_mode=True)

    def test_timespans(self, x):
        layer = self.make()
        ones = torch.ones(T, B, dtype=torch.float64)
        if not self.continuous:
            with pytest.raises(InputError, match="timespans"):
                layer(x, timespans=ones)
            return
        output, _ = layer(x)
        close(layer(x, timespans=ones)[0], output)
        assert not torch.allclose(layer(x, timespans=1.5 * ones)[0], output)
        with pytest.raises(InputError, match="timespans of shape"):
            layer(x, timespans=ones[:3])

    def test_vector_field(self, x):
        layer = self.make()
        h = 0.3 * torch.randn(B, layer.state_size, dtype=torch.float64)
        if not self.continuous:
            with pytest.raises(InputError, match="not applicable"):
                layer.vector_field(h, x[0])
            return
        assert layer.vector_field(h, x[0]).shape == h.shape

    @pytest.mark.parametrize("bad", [(T, B, C + 1), (T, C + 1), (0, B, C), (1, T, B, C)])
    def test_bad_inputs_are_refused(self, bad):
        with pytest.raises(InputError, match="expected"):
            self.make()(torch.zeros(bad, dtype=torch.float64))

    def test_bad_state_is_refused(self, x):
        layer = self.make()
        wrong = tuple(torch.zeros(1, B + 1, H, dtype=torch.float64) for _ in layer.state_names)
        with pytest.raises((ValueError, RuntimeError)):
            layer(x, wrong[0] if len(wrong) == 1 else wrong)
