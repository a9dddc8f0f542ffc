import math

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from sostenuto.checks import InputError
from sostenuto.nn import DampedOscillators, Stack
from sostenuto.nn.stack import RECURRENCES
from tests.laws.layer_laws import LayerLaws
from tests.nn.plain import count

F64 = torch.float64


def clocked(stack, size=0.3):
    """Set the clocks of the first block, which start at rest."""
    with torch.no_grad():
        for name, parameter in stack.named_parameters():
            if "_clock" in name:
                parameter.normal_(std=size)
    return stack


class TestStack(LayerLaws):
    """The first block with a clock, those above without."""

    cls = Stack
    options = {"clock": True}

    def make(self, **options):
        return clocked(super().make(**options))

    def test_stack_is_layer_on_layer(self, x):
        stack, first = self.make(num_layers=2), self.make()
        second = Stack(first.hidden_size, first.hidden_size, dtype=F64)
        weights = stack.state_dict()
        first.load_state_dict({k: v for k, v in weights.items() if "_l0" in k})
        second.load_state_dict({k.replace("_l1", "_l0"): v for k, v in weights.items() if "_l1" in k})
        torch.testing.assert_close(stack(x)[0], second(first(x)[0])[0])

    def test_all_weights_are_torchs_lists(self):
        """Those of a recurrence lie one level deeper."""
        layer = self.called(num_layers=2, bidirectional=True)
        assert len(layer.all_weights) == 4
        assert any(weight is layer.weight_gate_l1_reverse for weight in layer.all_weights[3])


@pytest.mark.parametrize("layer", RECURRENCES)
def test_every_recurrence_starts_at_unit_size(layer):
    torch.manual_seed(0)
    stack = Stack(3, 32, num_layers=2, layer=layer)
    output, state = stack(torch.randn(300, 4, 3))
    assert 0.3 < output[100:].std() < 10
    assert torch.isfinite(output).all()
    again, _ = stack(torch.randn(5, 4, 3), state)
    assert torch.isfinite(again).all()
    output.square().mean().backward()
    assert all(parameter.grad is not None for parameter in stack.recurrence.parameters() if parameter.requires_grad)
    assert stack.recurrence.all_weights[0][0].grad.abs().max() > 1e-6


def test_symbols_differ_more_than_they_share():
    """The bias of the input map must not hide which channel of many is one."""
    torch.manual_seed(0)
    stack = Stack(97, 64)
    u = torch.nn.functional.linear(torch.eye(97), stack.weight_ih_l0, stack.bias_ih_l0)
    assert u.var(0).mean() > u.mean(0).square().mean()


def test_a_block_starts_with_as_much_to_say_as_its_input():
    """A larger input hides from the blocks above what the one below remembers."""
    torch.manual_seed(0)
    stack, x = Stack(3, 32), torch.randn(300, 4, 3)
    u = torch.nn.functional.linear(x, stack.weight_ih_l0, stack.bias_ih_l0)
    assert 0.2 < u.std() < 0.4
    assert 0.2 < (stack(x)[0] - u).std() < 1


@pytest.mark.parametrize("steps", [20, 50])
def test_is_the_equations_of_its_docstring(steps):
    """Part by part, and in one op."""
    stack = clocked(Stack(3, 6, clock=True, dtype=F64))
    x = torch.randn(steps, 2, 3, dtype=F64)
    u = x @ stack.weight_ih_l0.T + stack.bias_ih_l0
    v = (u - u.mean(-1, keepdim=True)) / (u.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    clock = 8 * (v @ stack.vector_clock_l0 / 6**0.5 + stack.bias_clock_l0)
    passing = 0.02 + torch.log1p(clock.exp() * (math.exp(0.98) - 1))
    r, state = stack.recurrence(v, timespans=passing)
    scale, direct = (stack.weight(name, 0, False) for name in ("vector_scale", "vector_direct"))
    w = torch.nn.functional.gelu(scale * r + direct * v, approximate="tanh")
    value, gate = (w @ stack.weight_gate_l0.T + stack.bias_gate_l0).chunk(2, dim=-1)
    output, (y, _) = stack(x)
    torch.testing.assert_close(output, u + value * torch.sigmoid(gate))
    torch.testing.assert_close(y, state[0])
    assert count(Stack(6, 6)) == count(Stack(6, 6, clock=True)) - 7 == 3 * 36 + 11 * 6


@pytest.mark.parametrize("step_size", [0.1, 0.5, 1.0])
def test_oscillators_of_small_steps_start_no_faster_than_these(step_size):
    stack = Stack(2, 16, layer="unicornn", layer_options={"step_size": step_size})
    largest = step_size * torch.sigmoid(stack.recurrence.weight("time_scale", 0, False)).max()
    assert 0.9 * step_size < largest < step_size
    assert torch.isfinite(stack(torch.randn(200, 2, 2))[0]).all()


def test_takes_a_class_and_the_options_of_its_own():
    stack = Stack(2, 8, layer=DampedOscillators, time_scales=(2.0, 50.0), layer_options={"backend": "reference"})
    assert isinstance(stack.recurrence, DampedOscillators)
    assert 1 / stack.recurrence.decay()[-1].item() == pytest.approx(50.0, rel=1e-4)
    assert stack.recurrence.backend == "reference"


def test_paper_keeps_the_recurrences_own_start():
    torch.manual_seed(3)
    stack = Stack(4, 4, layer="unicornn", init="paper")
    torch.manual_seed(3)
    own = type(stack.recurrence)(4, 4)
    own.reset_parameters()
    assert stack.recurrence.step_size == own.step_size == (0.1,)
    assert stack.weight("vector_scale", 0, False).tolist() == [1.0] * 4


def test_what_a_stack_refuses_it_says_of_its_recurrence():
    x = torch.zeros(5, 3, 2)
    with pytest.raises(InputError, match="expected no timespans: SRU is a discrete map"):
        Stack(2, 4, layer="sru")(x, timespans=torch.ones(5, 3))
    with pytest.raises(InputError, match="SRU is a discrete map, not a step of a differential equation"):
        Stack(2, 4, layer="sru").vector_field(torch.zeros(3, 4), x[0])


def test_timespans_reach_the_recurrence():
    stack, x = clocked(Stack(2, 5, clock=True, dtype=F64)), torch.randn(9, 3, 2, dtype=F64)
    output, _ = stack(x.repeat_interleave(2, 0), timespans=0.5)
    torch.testing.assert_close(output[1::2], stack(x)[0])


def test_a_clock_starts_at_the_pace_of_the_steps():
    """So a stack begins as one without."""
    torch.manual_seed(0)
    stack, x = Stack(2, 8, clock=True), torch.randn(30, 4, 2)
    plain = Stack(2, 8)
    plain.load_state_dict({name: value for name, value in stack.state_dict().items() if "_clock" not in name})
    torch.testing.assert_close(stack(x)[0], plain(x)[0])
    for options in ({"half_life": 20}, {"layer": "sru"}, {"layer_options": {"half_life": 9.0}}):
        with pytest.raises(InputError, match="expected damped oscillators without a half_life for clock=True, got"):
            Stack(2, 8, clock=True, **options)


def test_one_block_learns_to_hold_what_is_marked():
    """Linear oscillators alone leave three quarters of the variance after as many steps."""
    torch.manual_seed(0)
    layer, readout = Stack(2, 16, clock=True), torch.nn.Linear(16, 1)
    optimizer = torch.optim.AdamW([*layer.parameters(), *readout.parameters()], lr=0.01)
    for _ in range(250):
        value, marked = torch.randn(40, 32), torch.rand(40, 32) < 0.1
        marked[0] = True
        newest = torch.where(marked, torch.arange(40)[:, None], 0).cummax(0).values
        output, _ = layer(torch.stack([value, marked.float()], -1))
        loss = (readout(output)[..., 0] - value.gather(0, newest)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


def test_certificate_is_the_recurrences():
    stack = Stack(2, 8, num_layers=2)
    found = stack.certificate("discrete", layer=1)
    assert found.holds
    assert found.rate == stack.recurrence.certificate("discrete", layer=1).rate


def test_a_recurrence_that_grows_is_refused():
    with pytest.raises(InputError, match=r"expected a LipschitzRNN that stays bounded, got a response of .* step_size"):
        Stack(2, 16, layer="lipschitz", layer_options={"step_size": 60.0})


def test_torchs_own_units_are_refused():
    with pytest.raises(InputError, match="expected layer to be one of"):
        Stack(2, 4, layer="lstm")
    with pytest.raises(InputError, match="RecurrentLayer"):
        Stack(2, 4, layer=Stack)


@pytest.mark.parametrize("layer", ["damped", "sru", "unicornn", "lipschitz"])
def test_streams_and_reads_packed_sequences(layer):
    stack = clocked(Stack(3, 5, 2, layer=layer, clock=layer == "damped", bias=False, dtype=F64))
    x = torch.randn(6, 2, 3, dtype=F64)
    output, _ = stack(x)
    state, steps = None, []
    for x_t in x:
        step, state = stack.step(x_t, state)
        steps.append(step)
    torch.testing.assert_close(torch.stack(steps), output)
    packed, _ = stack(pack_sequence([x[:, 0], x[:4, 1]]))
    torch.testing.assert_close(pad_packed_sequence(packed)[0][:4, 1], output[:4, 1])


def drawn_by_name(stack):
    for name, value in stack.named_parameters():
        if "weight_hh" in name:
            torch.nn.init.orthogonal_(value)
        elif "weight" in name:
            torch.nn.init.xavier_uniform_(value)
        elif "bias" in name:
            torch.nn.init.zeros_(value)


def drawn_by_axes(stack):
    for value in stack.parameters():
        if value.ndim > 1:
            torch.nn.init.kaiming_normal_(value)
        else:
            torch.nn.init.zeros_(value)


def drawn_around_0(stack):
    for value in stack.parameters():
        torch.nn.init.uniform_(value, -0.08, 0.08)


@pytest.mark.parametrize("draw", [drawn_by_name, drawn_by_axes, drawn_around_0])
def test_programs_that_draw_torchs_weights_anew_learn(draw):
    """As programs for nn.LSTM do; a stack keeps its time scales, and the size of its states and outputs."""
    torch.manual_seed(0)
    stack, readout = Stack(1, 24, num_layers=2), torch.nn.Linear(24, 1)
    scales = 1 / stack.recurrence.decay()
    draw(stack)
    assert torch.allclose(1 / stack.recurrence.decay(), scales, rtol=0.1)
    optimizer = torch.optim.Adam([*stack.parameters(), *readout.parameters()], lr=0.005)
    for _ in range(150):  # what came 10 steps ago
        x = torch.randn(60, 16, 1)
        loss = (readout(stack(x)[0])[10:] - x[:-10]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.5


def test_files_with_values_for_differences_are_read():
    """Older ones have no starts."""
    stack, x = clocked(Stack(2, 5, num_layers=2, bidirectional=True, clock=True)), torch.randn(30, 4, 2)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    newer = stack.state_dict()
    older = {name: value for name, value in newer.items() if "start_" not in name and "delta_" not in name}
    for name, start in newer.items():
        if "start_" in name:
            older[name.replace("start_", "vector_")] = start + newer[name.replace("start_", "delta_")]
    assert len(newer) - len(older) == 4 * 5
    for file in (older, newer):
        again = Stack(2, 5, num_layers=2, bidirectional=True, clock=True)
        again.load_state_dict(file)
        assert torch.equal(again(x)[0], stack(x)[0])
    with pytest.raises(RuntimeError, match="start_norm_l0"):
        again.load_state_dict(dict(stack.named_parameters()))


def test_a_new_start_forgets_the_old_one():
    stack = Stack(2, 6)
    drawn_around_0(stack)
    stack.reset_parameters()
    assert all(value.abs().max() == 0 for name, value in stack.named_parameters() if "delta_" in name)
    assert stack.weight("vector_norm", 0, False).tolist() == [1.0] * 6
    assert 1 / stack.recurrence.decay()[-1].item() == pytest.approx(1000.0, rel=1e-4)
