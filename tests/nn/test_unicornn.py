import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.nn import UnICORNN
from tests.laws.layer_laws import LayerLaws


class TestUnICORNN(LayerLaws):
    cls = UnICORNN
    options = {"step_size": 0.3, "stiffness": 2.0}


class TestPositiveUnICORNN(LayerLaws):
    cls = UnICORNN
    options = {"step_size": 0.3, "stiffness": 0.5, "positive": True, "bias": False}


def plain_loop(layer, x):
    """The paper's eq. (6), unit by unit, independent of the library's scan."""
    for level in range(layer.num_layers):
        w, c = (getattr(layer, f"{name}_l{level}") for name in ("weight_hh", "time_scale"))
        v, b = (getattr(layer, f"{name}_l{level}") for name in ("weight_ih", "bias_ih"))
        g = layer.step_size[level] * (0.5 + 0.5 * torch.tanh(c / 2))
        y = z = torch.zeros(x.shape[1], layer.hidden_size, dtype=x.dtype)
        outputs = []
        for u in x:
            z = z - g * (torch.tanh(w * y + u @ v.T + b) + layer.stiffness * y)
            y = y + g * z
            outputs.append(y)
        x = torch.stack(outputs)
    return x


def test_equals_a_plain_loop():
    layer = UnICORNN(3, 5, num_layers=3, step_size=[0.1, 0.2, 0.4], stiffness=1.7, dtype=torch.float64)
    torch.nn.init.normal_(layer.bias_ih_l1)
    x = torch.randn(40, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(layer(x)[0], plain_loop(layer, x), rtol=1e-12, atol=1e-12)


def test_skip_reads_the_layer_below_the_skipped_ones():
    layer = UnICORNN(3, 4, num_layers=4, skip=2, dtype=torch.float64)
    assert layer.weight_skip_l2.shape == (4, 3)
    assert layer.weight_skip_l3.shape == (4, 4)
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    output = layer(x)[0]
    with torch.no_grad():
        layer.weight_skip_l2.zero_()
        layer.weight_skip_l3.zero_()
    plain = UnICORNN(3, 4, num_layers=4, dtype=torch.float64)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if "skip" not in k})
    torch.testing.assert_close(layer(x)[0], plain(x)[0])
    assert not torch.allclose(output, plain(x)[0])


def test_step_is_symplectic_and_follows_the_field():
    layer = UnICORNN(1, 1, step_size=0.2, stiffness=1.5, dtype=torch.float64)
    u = torch.randn(1, 1, dtype=torch.float64)

    def step(state):
        y, z = layer.step(u, (state[:1].reshape(1, 1, 1), state[1:].reshape(1, 1, 1)))[1]
        return torch.cat([y.flatten(), z.flatten()])

    state = torch.randn(2, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(step, state)
    assert torch.linalg.det(jacobian).item() == pytest.approx(1.0, abs=1e-12)
    small = UnICORNN(1, 1, step_size=1e-6, stiffness=1.5, dtype=torch.float64)
    small.load_state_dict(layer.state_dict())
    y, z = small.step(u, (state[:1].reshape(1, 1, 1), state[1:].reshape(1, 1, 1)))[1]
    rate = (torch.cat([y.flatten(), z.flatten()]) - state) / 1e-6
    torch.testing.assert_close(rate, layer.vector_field(state[None], u)[0], rtol=1e-4, atol=1e-5)


def test_positive_keeps_weights_above_minus_stiffness_while_training():
    layer = UnICORNN(1, 8, stiffness=0.25, positive=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=10.0)
    for _ in range(20):
        optimizer.zero_grad()
        layer.weight_hh_l0.sum().backward()
        optimizer.step()
    assert (layer.weight_hh_l0 >= -0.25).all()
    assert "parametrizations.weight_hh_l0.original" in layer.state_dict()


def test_learn_step_off_freezes_the_time_scale():
    layer = UnICORNN(1, 4, learn_step=False)
    assert not layer.time_scale_l0.requires_grad
    assert "time_scale_l0" in layer.state_dict()


def test_initial_values_are_the_papers():
    layer = UnICORNN(4, 2000)
    assert layer.weight_hh_l0.min() >= 0
    assert layer.weight_hh_l0.max() <= 1
    assert layer.time_scale_l0.abs().max() <= 0.1
    assert not layer.bias_ih_l0.any()
    assert layer.weight_ih_l0.abs().max().item() == pytest.approx((6 / (65 * 4)) ** 0.5, rel=0.01)


def test_spread_gives_a_bank_of_frequencies():
    steps = UnICORNN(1, 2000, step_size=1.4, spread=3.0).effective_step(0)
    assert 0.066 < steps.min() < 0.08 < 1.3 < steps.max() < 1.334


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"spread": -1.0}, "spread"),
        ({"step_size": 0.0}, "step_size"),
        ({"step_size": [0.1]}, "expected one step_size or 2"),
        ({"stiffness": -1.0}, "stiffness"),
        ({"skip": 1}, "skip"),
        ({"backend": "gpu?"}, "backend"),
        ({"dropout": 1.5}, "dropout"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        UnICORNN(1, 2, num_layers=2, **options)


def test_steps_beyond_the_stability_limit_are_warned_of():
    with pytest.warns(UserWarning, match=r"expected step_size/2 · √stiffness below 2.*got 2\.05.*lower step_size"):
        wild = UnICORNN(1, 4, num_layers=2, step_size=[0.1, 4.1], stiffness=1.0)
    calm = UnICORNN(1, 4, num_layers=2, step_size=[0.1, 3.6], stiffness=1.0)
    for layer, grows in ((wild, True), (calm, False)):
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if not name.startswith("weight_ih"):
                    parameter.zero_()
        y = layer(torch.zeros(40, 1, 1), (torch.ones(2, 1, 4), torch.zeros(2, 1, 4)))[1][0]
        assert (y[1].abs().max() > 1e3) == grows


@pytest.mark.parametrize("ask", ["forward", "peak", "inverse"])
def test_timespans_beyond_the_stability_limit_are_warned_of(ask):
    layer, x = UnICORNN(1, 4, step_size=1.0).eval(), torch.randn(400, 2, 1)
    gaps = torch.empty(400, 2).exponential_()
    calls = {
        "forward": layer,
        "peak": layer.peak,
        "inverse": lambda x, **more: layer.inverse((state, state), x, **more),
    }
    state = torch.zeros(1, 2, 4)
    expected = r"expected the largest of timespans .* below 2, the stability limit of the oscillators, got "
    with pytest.warns(UserWarning, match=expected) as said:
        calls[ask](x, timespans=gaps)
    assert len(said) == 1
    worst = (gaps.max() * layer.effective_step().max()).item()
    assert f"got {worst:.3g}: states grow exponentially" in str(said[0].message)
    calls[ask](x, timespans=gaps.clamp(max=3.0))
    calls[ask](x)
