import pytest
import torch

from sostenuto.nn import ResidualGRU, ResidualLSTM
from tests.laws.layer_laws import LayerLaws, assert_states_equal


class TestResidualGRU(LayerLaws):
    cls = ResidualGRU
    options = {"step_size": 0.4}


class TestResidualLSTM(LayerLaws):
    cls = ResidualLSTM
    options = {"step_size": 0.4}


class TestWholeSequenceResidualGRU(LayerLaws):
    """The default step 1/T, T being each sequence's own length."""

    cls = ResidualGRU
    streams = False


@pytest.mark.parametrize(("ours", "theirs"), [(ResidualGRU, torch.nn.GRU), (ResidualLSTM, torch.nn.LSTM)])
def test_unit_step_is_torchs_cell(ours, theirs):
    layer = ours(2, 5, num_layers=2, step_size=1.0, dtype=torch.float64)
    torch_layer = theirs(2, 5, num_layers=2, dtype=torch.float64)
    torch_layer.load_state_dict(layer.state_dict())
    x = torch.randn(9, 3, 2, dtype=torch.float64)
    output, state = layer(x)
    expected, expected_state = torch_layer(x)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    assert_states_equal(state, expected_state)


@pytest.mark.parametrize("cls", [ResidualGRU, ResidualLSTM])
def test_small_steps_follow_the_vector_field(cls):
    layer = cls(2, 3, step_size=1e-6, dtype=torch.float64)
    parts = tuple(torch.randn(1, 1, 3, dtype=torch.float64) for _ in layer.state_names)
    u = torch.randn(1, 2, dtype=torch.float64)
    _, after = layer.step(u, parts[0] if len(parts) == 1 else parts)
    after = (after,) if isinstance(after, torch.Tensor) else after
    rate = torch.cat([(b - a)[0] for a, b in zip(parts, after, strict=True)], dim=-1) / 1e-6
    field = layer.vector_field(torch.cat([part[0] for part in parts], dim=-1), u)
    torch.testing.assert_close(rate, field, rtol=1e-4, atol=1e-6)
