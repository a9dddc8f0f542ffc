"""What every layer must bear from outside: other dtypes and devices, autocast, ensembles, files, seeds, sizes."""

import pytest
import safetensors.torch
import torch

STEPS, BATCH, CHANNELS, UNITS = 5, 3, 2, 4


def parts_of(state):
    return (state,) if isinstance(state, torch.Tensor) else tuple(state)


def exact(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


class TransformLaws:
    """Inherited by `LayerLaws`; says what does not hold for a layer by the flags."""

    autocasts = True
    """Whether the layer answers for its state under autocast."""

    ensembles = True
    """Whether `torch.func` can map the layer over its weights."""

    def single(self, **options):
        return self.cls(CHANNELS, UNITS, **{**self.options, **options})

    def test_autocast_keeps_a_float32_state(self):
        if not self.autocasts:
            pytest.skip("torch's own kernels settle what autocast makes of a state")
        layer, x = self.single(num_layers=2), torch.randn(STEPS, BATCH, CHANNELS)
        expected, _ = layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, state = layer(x)
        assert {part.dtype for part in parts_of(state)} == {torch.float32}
        # bfloat16 has 8 bits: products err by some 4e-3 each, and there are a few in a row.
        torch.testing.assert_close(output.float(), expected, rtol=0, atol=0.03 * max(expected.abs().max().item(), 0.1))
        for gradient in torch.autograd.grad(output.float().sum(), [*layer.parameters()], allow_unused=True):
            assert gradient is None or bool(torch.isfinite(gradient).all())

    def test_to_float64(self):
        layer, wide = self.single(num_layers=2), self.single(num_layers=2, dtype=torch.float64)
        wide.load_state_dict(layer.state_dict())
        x = torch.randn(STEPS, BATCH, CHANNELS, dtype=torch.float64)
        moved, _ = layer.to(torch.float64)(x)
        assert moved.dtype == torch.float64
        torch.testing.assert_close(moved, wide(x)[0], rtol=1e-6, atol=1e-7)

    def test_safetensors_round_trip(self):
        layer, other = self.single(num_layers=2, bidirectional=True), self.single(num_layers=2, bidirectional=True)
        stored = safetensors.torch.save({name: value.contiguous() for name, value in layer.state_dict().items()})
        other.load_state_dict(safetensors.torch.load(stored), strict=True)
        x = torch.randn(STEPS, BATCH, CHANNELS)
        exact(other(x)[0], layer(x)[0])

    def test_made_without_memory_then_loaded(self):
        layer = self.single(num_layers=2)
        with torch.device("meta"):
            hollow = self.single(num_layers=2)
        assert {parameter.device.type for parameter in hollow.parameters()} == {"meta"}
        assert hollow(torch.empty(STEPS, BATCH, CHANNELS, device="meta"))[0].shape == (STEPS, BATCH, UNITS)
        hollow.to_empty(device="cpu").load_state_dict(layer.state_dict(), strict=True)
        x = torch.randn(STEPS, BATCH, CHANNELS)
        exact(hollow(x)[0], layer(x)[0])

    def test_made_without_memory_then_drawn(self):
        layer, hollow = self.single(num_layers=2), self.single(num_layers=2, device="meta").to_empty(device="cpu")
        for parameter in hollow.parameters():
            torch.nn.init.constant_(parameter, float("nan"))  # what an empty tensor may hold
        for one in (layer, hollow):
            torch.manual_seed(7)
            one.reset_parameters()
        for (name, drawn), (_, expected) in zip(hollow.named_parameters(), layer.named_parameters(), strict=True):
            torch.testing.assert_close(drawn, expected, rtol=0, atol=0, msg=f"{name} is not drawn anew")

    def test_one_step_of_one_sequence(self):
        layer = self.single(num_layers=2).eval()
        x = torch.randn(1, 1, CHANNELS)
        output, state = layer(x)
        assert output.shape == (1, 1, UNITS)
        if self.streams:
            step, after = layer.step(x[0])
            torch.testing.assert_close(step, output[0])
            for one, other in zip(parts_of(after), parts_of(state), strict=True):
                torch.testing.assert_close(one, other)
        torch.autograd.grad(output.sum(), [*layer.parameters()], allow_unused=True)

    def test_dropout_is_the_seeds(self):
        layer, x = self.single(num_layers=2, dropout=0.5), torch.randn(STEPS, 2 * BATCH, CHANNELS)
        drawn = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            drawn.append(layer(x)[0])
        exact(drawn[0], drawn[1])
        assert not torch.equal(drawn[0], drawn[2])

    def ensemble(self):
        """Give three members, their weights stacked, and the layer as a function of weights and input."""
        members = [self.single(dtype=torch.float64).eval() for _ in range(3)]
        named = [{**dict(member.named_parameters()), **dict(member.named_buffers())} for member in members]
        stacked = {name: torch.stack([one[name].detach() for one in named]) for name in named[0]}

        def run(weights, x):
            return torch.func.functional_call(members[0], weights, (x,))[0]

        return members, stacked, run

    def gradients_alone(self, members, inputs):
        for index, (member, x) in enumerate(zip(members, inputs, strict=True)):
            names, weights = zip(*member.named_parameters(), strict=True)
            found = torch.autograd.grad(member(x)[0].sin().sum(), weights, materialize_grads=True, allow_unused=True)
            for name, gradient in zip(names, found, strict=True):
                yield index, name, gradient

    def test_ensemble(self):
        members, stacked, run = self.ensemble()
        x = torch.randn(STEPS, BATCH, CHANNELS, dtype=torch.float64)
        if not self.ensembles:
            with pytest.raises(RuntimeError, match="Batching rule not implemented"):
                torch.vmap(run, in_dims=(0, None))(stacked, x)
            return
        weights = {name: value.requires_grad_() for name, value in stacked.items()}
        together = torch.vmap(run, in_dims=(0, None))(weights, x)
        torch.testing.assert_close(together, torch.stack([member(x)[0] for member in members]))
        found = torch.autograd.grad(
            together.sin().sum(), [*weights.values()], materialize_grads=True, allow_unused=True
        )
        by_name = dict(zip(weights, found, strict=True))
        for index, name, gradient in self.gradients_alone(members, [x] * 3):
            torch.testing.assert_close(by_name[name][index], gradient)

    @pytest.mark.parametrize("mapped", ["weights", "inputs", "both"])
    def test_gradients_inside_vmap(self, mapped):
        if not self.ensembles:
            pytest.skip("torch's own kernels cannot be mapped over their weights")
        members, stacked, run = self.ensemble()
        x = torch.randn(3, STEPS, BATCH, CHANNELS, dtype=torch.float64)
        if mapped == "inputs":  # gradients sample by sample
            members, stacked = [members[0]] * 3, {name: value[0] for name, value in stacked.items()}
        if mapped == "weights":
            x = x[0]
        axes = (None if mapped == "inputs" else 0, None if mapped == "weights" else 0)
        gradient = torch.func.grad(lambda weights, x: run(weights, x).sin().sum())
        found = torch.vmap(gradient, in_dims=axes)(stacked, x)
        for index, name, alone in self.gradients_alone(members, [x] * 3 if mapped == "weights" else x):
            torch.testing.assert_close(found[name][index], alone)
