"""What every layer must do under torch's own tools: checkpointing, Jacobians, pickling, initialization."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from sostenuto.checks import InputError

STEPS, BATCH, CHANNELS, UNITS = 5, 3, 2, 4


def as_parts(state):
    return (state,) if isinstance(state, torch.Tensor) else tuple(state)


class ToolLaws:
    """Inherited by `LayerLaws`."""

    def tool_case(self, **options):
        layer = self.cls(CHANNELS, UNITS, **{**self.options, **options})
        return layer, torch.randn(STEPS, BATCH, CHANNELS, dtype=next(layer.parameters()).dtype, requires_grad=True)

    @pytest.mark.parametrize("mixed", [False, True])
    def test_checkpointing_changes_no_gradient(self, mixed):
        layer, x = self.tool_case(num_layers=2)
        tensors = [x, *layer.parameters()]
        found = []
        for call in (layer, lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
                output, _ = call(x)
            found.append(torch.autograd.grad(output.float().sin().sum(), tensors, allow_unused=True))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)

    def test_checkpointing_with_gradients_differentiated_again(self):
        layer, x = self.tool_case(dtype=torch.float64)
        found = []
        for call in (layer, lambda x: torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)):
            (once,) = torch.autograd.grad(call(x)[0].sin().sum(), x, create_graph=True)
            found.append(once.detach())
        torch.testing.assert_close(*found)

    def test_jacobian_of_all_outputs_at_once(self):
        layer, x = self.tool_case(dtype=torch.float64, num_layers=2)
        start = tuple(
            0.1 * torch.randn(2, BATCH, UNITS, dtype=torch.float64)
            for _ in range(len(getattr(layer, "state_names", "h")))
        )

        def run(x, *start):
            output, state = layer(x, start[0] if len(start) == 1 else start)
            return (output[1:], *as_parts(state))

        inputs = (x, *start)
        expected = torch.autograd.functional.jacobian(run, inputs)
        got = torch.autograd.functional.jacobian(run, inputs, vectorize=True)
        for row, other_row in zip(got, expected, strict=True):
            for one, other in zip(row, other_row, strict=True):
                torch.testing.assert_close(one, other)

    def test_weight_gradients_of_all_outputs_at_once(self):
        layer, x = self.tool_case(dtype=torch.float64)
        output = layer(x)[0][-1].flatten()
        weights = [parameter for parameter in layer.parameters() if parameter.requires_grad]
        rows = torch.eye(len(output), dtype=torch.float64)
        options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}

        def gradients(rows, **more):
            return torch.autograd.grad(output, weights, rows, **options, **more)

        for got in (gradients(rows, is_grads_batched=True), torch.vmap(gradients)(rows)):
            for index, row in enumerate(rows):
                for one, other in zip(got, gradients(row), strict=True):
                    torch.testing.assert_close(one[index], other)

    def test_pickled_whole(self):
        layer, x = self.tool_case(num_layers=2, bidirectional=True)
        model = nn.Sequential(layer)
        stored = io.BytesIO()
        torch.save(model, stored)
        stored.seek(0)
        copies = (
            pickle.loads(pickle.dumps(model)),
            torch.load(stored, weights_only=False),
            pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model)))),
            copy.deepcopy(pickle.loads(pickle.dumps(model))),
        )
        for other in copies:
            torch.testing.assert_close(other(x)[0], model(x)[0], rtol=0, atol=0)
            assert type(other[0]).__name__ == type(layer).__name__
            assert isinstance(other[0], self.cls)
            assert list(other.state_dict()) == list(model.state_dict())
            other(x)[0].sum().backward()
            assert all(parameter.grad is not None for parameter in other.parameters() if parameter.requires_grad)
            with torch.no_grad():
                next(other.parameters()).add_(1)
            assert not torch.equal(other(x)[0], model(x)[0])

    def constrained_names(self, layer):
        return list(layer.parametrizations) if parametrize.is_parametrized(layer) else []

    def test_constrained_weights_refuse_writes_in_place(self):
        layer, x = self.tool_case()
        before = layer(x)[0]
        for name in self.constrained_names(layer):
            writes = (
                lambda weight: weight.zero_(),
                lambda weight: nn.init.uniform_(weight),
                lambda weight: nn.init.orthogonal_(weight) if weight.ndim == 2 else weight.normal_(),
                lambda weight: weight.data.fill_(1.0),
                lambda weight: weight.detach().mul_(2),
                lambda weight: weight[0].fill_(1.0),
                lambda weight: weight.__setitem__(0, 1.0),
                lambda weight: torch.add(weight, 1, out=weight),
            )
            for write in writes:
                with torch.no_grad(), pytest.raises(InputError, match=f"assign it: layer.{name} = "):
                    write(getattr(layer, name))
        torch.testing.assert_close(layer(x)[0], before, rtol=0, atol=0)

    def test_constrained_weights_are_ordinary_tensors_otherwise(self):
        layer, _ = self.tool_case()
        for name in self.constrained_names(layer):
            weight = getattr(layer, name)
            assert type(2 * weight) is torch.Tensor
            assert type(weight.clone()) is torch.Tensor
            weight.clone().zero_()
            weight.sum().backward()
            with torch.no_grad():
                setattr(layer, name, weight.detach().clone())
            torch.testing.assert_close(getattr(layer, name), weight, rtol=1e-4, atol=1e-5)
            row = weight.new_ones(weight.shape[-1]).as_subclass(torch.Tensor)
            torch.testing.assert_close(torch.vmap(lambda rows, w=weight: w * rows)(row[None])[0], weight * row)
            stored = io.BytesIO()
            torch.save(weight.detach(), stored)
            stored.seek(0)
            assert type(torch.load(stored, weights_only=True)) is torch.Tensor

    def test_bfloat16(self):
        layer, x = self.tool_case(num_layers=2)
        layer.to(torch.bfloat16)
        rounded = copy.deepcopy(layer).float()
        x = x.detach().bfloat16()
        output, _ = layer(x)
        assert output.dtype == torch.bfloat16
        expected, _ = rounded(x.float())
        torch.testing.assert_close(output.float(), expected, rtol=0, atol=0.1 * max(expected.abs().max().item(), 0.1))
        gradients = torch.autograd.grad(output.float().sum(), [*layer.parameters()], allow_unused=True)
        assert all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)
