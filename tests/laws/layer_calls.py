"""What every layer must take in a call, and the one sentence in which it refuses the rest."""

import warnings

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

from sostenuto.checks import InputError

LONG, MANY, WIDE, HIDDEN = 6, 3, 2, 4


def all_parts(state):
    return (state,) if isinstance(state, torch.Tensor) else tuple(state)


def same(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


class CallLaws:
    """Inherited by `LayerLaws`, which makes the layer."""

    def called(self, **options):
        return self.cls(WIDE, HIDDEN, **{**self.options, **options})

    def given(self, layer, batch=MANY, dtype=torch.float32):
        rows = layer.num_layers * layer.num_directions
        parts = tuple(0.3 * torch.randn(rows, batch, HIDDEN, dtype=dtype) for _ in layer.state_names)
        return parts[0] if len(parts) == 1 else parts

    def test_hx_is_the_state(self):
        layer, x = self.called(), torch.randn(LONG, MANY, WIDE)
        state = self.given(layer)
        same(layer(x, hx=state)[0], layer(x, state)[0])
        with pytest.raises(InputError, match="got state and hx"):
            layer(x, state, hx=state)

    @pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["one", "both"])
    def test_an_empty_batch(self, options):
        layer = self.called(**options)
        x = torch.zeros(LONG, 0, WIDE, requires_grad=True)
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        for state in (None, self.given(layer, batch=0)):
            output, end = layer(x, state)
            assert output.shape == (LONG, 0, layer.output_size)
            rows = layer.num_layers * layer.num_directions
            assert {tuple(part.shape) for part in all_parts(end)} == {(rows, 0, HIDDEN)}
            found = torch.autograd.grad(output.sum(), [x, *layer.parameters()], allow_unused=True)
            assert found[0].shape == x.shape
            assert all(gradient is None or not gradient.any() for gradient in found[1:])
        for name, value in layer.state_dict().items():
            same(value, before[name])

    def test_all_weights_are_torchs_lists(self):
        layer = self.called(num_layers=2, bidirectional=True)
        assert len(layer.all_weights) == 4
        names = [name for name, _ in layer.named_parameters() if "_l1_reverse" in name]
        assert len(layer.all_weights[3]) == len(names)
        same(layer.all_weights[0][0], layer.weight_ih_l0)
        recurrent = layer.weight_hh_l1_reverse
        assert any(torch.equal(weight, recurrent) for weight in layer.all_weights[3])

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.long, torch.complex64])
    def test_another_dtype_is_refused(self, dtype):
        layer, x = self.called(), torch.zeros(LONG, MANY, WIDE)
        with pytest.raises(InputError, match=f"expected input of the layer's torch.float32, got {dtype}"):
            layer(x.to(dtype))
        with pytest.raises(InputError, match=f"the layer's torch.float32, got {dtype}"):
            layer(pack_sequence([x[:, 0].to(dtype)]))
        state = self.given(layer)
        turned = state.to(dtype) if isinstance(state, torch.Tensor) else tuple(part.to(dtype) for part in state)
        with pytest.raises(InputError, match=f"state's . of the layer's torch.float32, got {dtype}"):
            layer(x, turned)

    def test_another_device_is_refused(self):
        with pytest.raises(InputError, match="expected input on cpu, where the layer is, got meta"):
            self.called()(torch.zeros(LONG, MANY, WIDE, device="meta"))

    def test_sizes_are_refused(self):
        for sizes in ((WIDE, HIDDEN, 0), (0, HIDDEN), (WIDE, -1)):
            with pytest.raises(InputError, match=r"expected .* to be a whole number of at least 1"):
                self.cls(*sizes, **self.options)

    def spanned(self, **options):
        if not self.continuous:
            pytest.skip("a discrete map has no time spans")
        return self.called(**options)

    def test_timespans_by_place_and_as_one_number(self):
        layer, x = self.spanned(), torch.randn(LONG, MANY, WIDE)
        spans = torch.full((LONG, MANY), 0.7)
        expected, _ = layer(x, timespans=spans)
        same(layer(x, None, spans)[0], expected)
        for one in (0.7, torch.tensor(0.7), torch.tensor(0.7, dtype=torch.float64)):
            torch.testing.assert_close(layer(x, timespans=one)[0], expected, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(layer(x[:, 0], timespans=one)[0], expected[:, 0], rtol=1e-5, atol=1e-6)
        packed = layer(pack_sequence([x[:, 0], x[:3, 1]]), timespans=0.7)[0]
        torch.testing.assert_close(packed.data[0], expected[0, 0], rtol=1e-5, atol=1e-6)

    def test_timespans_have_the_layout_of_the_input(self):
        layer, x = self.spanned(), torch.randn(LONG, MANY, WIDE)
        turned = self.called(batch_first=True)
        turned.load_state_dict(layer.state_dict())
        spans = torch.rand(LONG, MANY) + 0.1
        expected, _ = layer(x, timespans=spans)
        torch.testing.assert_close(turned(x.transpose(0, 1), timespans=spans.T)[0].transpose(0, 1), expected)
        torch.testing.assert_close(layer(x[:, 1], timespans=spans[:, 1])[0], expected[:, 1])
        with pytest.raises(InputError, match=r"shape \(6, 3\) \(time, batch\), got \(3, 6\)"):
            layer(x, timespans=spans.T)
        with pytest.raises(InputError, match=r"shape \(3, 6\) \(batch, time\), got \(6, 3\)"):
            turned(x.transpose(0, 1), timespans=spans)
        with pytest.raises(InputError, match=r"shape \(6,\) \(time,\), got \(6, 1\)"):
            layer(x[:, 1], timespans=spans[:, :1])

    def test_timespans_are_packed_where_the_input_is(self):
        layer, x, spans = self.spanned(), torch.randn(LONG, MANY, WIDE), torch.rand(LONG, MANY) + 0.1
        packed = pack_padded_sequence(x, [6, 4, 4])
        with pytest.raises(InputError, match="expected timespans packed as the input is, got Tensor"):
            layer(packed, timespans=spans)
        with pytest.raises(InputError, match="expected timespans as a tensor, as the input is, got PackedSequence"):
            layer(x, timespans=pack_padded_sequence(spans, [6, 4, 4]))
        with pytest.raises(InputError, match="one of the timespans for each step packed"):
            layer(packed, timespans=pack_padded_sequence(spans, [6, 5, 3]))

    @pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
    def test_timespans_that_are_no_durations_are_refused(self, wrong):
        layer, x = self.spanned(), torch.randn(LONG, MANY, WIDE)
        spans = torch.ones(LONG, MANY)
        spans[2, 1] = wrong
        for one in (spans, wrong):
            with pytest.raises(InputError, match=f"expected finite timespans of at least 0, got {wrong}"):
                layer(x, timespans=one)
        with pytest.raises(InputError, match="expected real timespans"):
            layer(x, timespans=torch.ones(LONG, MANY, dtype=torch.complex64))

    def test_quiet_inside_the_stability_limit(self):
        layer, x = self.spanned(), torch.randn(LONG, MANY, WIDE)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            layer(x, timespans=torch.rand(LONG, MANY))
