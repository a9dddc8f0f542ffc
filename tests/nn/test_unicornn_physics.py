"""What rusch2021 says of UnICORNN as a mechanical system, where it is true: inverse, energy, volume, gradients."""

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from sostenuto.checks import InputError
from sostenuto.nn import UnICORNN

DOUBLE = {"dtype": torch.float64}


def make(*sizes, **options):
    layer = UnICORNN(*sizes, **{"dtype": torch.float64, **options})
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "bias" in name or "time_scale" in name:
                parameter.normal_()
    return layer


def start(layer, batch):
    shape = layer.num_layers, batch, layer.hidden_size
    return tuple(torch.randn(shape, dtype=layer.weight_hh_l0.dtype) for _ in range(2))


# ---- inverse


@pytest.mark.parametrize("options", [{}, {"skip": 2}, {"batch_first": True}, {"backend": "reference"}])
def test_inverse_finds_the_initial_state_and_every_one_between(options):
    layer = make(2, 5, num_layers=3, step_size=0.3, stiffness=1.5, **options)
    x = torch.randn(300, 4, 2, **DOUBLE)
    x = x.transpose(0, 1) if layer.batch_first else x
    initial = start(layer, 4)
    output, end = layer(x, initial)
    found = layer.inverse(end, x, trajectory=True)
    for one, other in zip(found.state, initial, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    assert len(found.drift) == 3
    assert max(found.drift) < 1e-9
    torch.testing.assert_close(found.trajectory[-1][0], output, rtol=0, atol=1e-9)
    middle = layer(x[:, :100] if layer.batch_first else x[:100], initial)[1]
    for level, path in enumerate(found.trajectory):
        for part, state in zip(path, middle, strict=True):
            torch.testing.assert_close(part[:, 99] if layer.batch_first else part[99], state[level], rtol=0, atol=1e-9)


def test_inverse_of_packed_sequences_with_timespans():
    layer = make(2, 5, num_layers=2)
    sequences = [torch.randn(n, 2, **DOUBLE) for n in (7, 30, 19)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    spans = pack_sequence([torch.rand(len(one), **DOUBLE) for one in sequences], enforce_sorted=False)
    initial = start(layer, 3)
    output, end = layer(packed, initial, timespans=spans)
    found = layer.inverse(end, packed, timespans=spans, trajectory=True)
    for one, other in zip(found.state, initial, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)
    torch.testing.assert_close(found.trajectory[-1][0].data, output.data, rtol=0, atol=1e-9)


def test_inverse_of_one_unbatched_sequence():
    layer = make(2, 5, num_layers=2)
    x = torch.randn(50, 2, **DOUBLE)
    found = layer.inverse(layer(x)[1], x)
    assert found.state[0].shape == (2, 5)
    assert found.state[0].abs().max() < 1e-9
    assert found.trajectory is None


def test_inverse_reports_a_lost_past_and_raises_when_asked():
    layer = UnICORNN(1, 8, stiffness=0.5)
    with torch.no_grad():
        layer.weight_hh_l0.uniform_(-2, -1)
    x = torch.randn(4000, 2, 1)
    end = layer(x)[1]
    assert layer.inverse(end, x).drift[0] > 0.01
    with pytest.raises(InputError, match=r"expected a drift of at most 0.001, got .* in layer 0; use float64"):
        layer.inverse(end, x, tolerance=1e-3)
    kind = UnICORNN(1, 8)
    assert kind.inverse(kind(x)[1], x, tolerance=1e-3).drift[0] < 1e-3


def test_inverse_refuses_what_it_cannot_undo():
    x = torch.randn(5, 2, 2, **DOUBLE)
    layer = make(2, 5, num_layers=2, dropout=0.5)
    with pytest.raises(InputError, match="call eval"):
        layer.inverse(layer(x)[1], x)
    layer.eval()
    assert max(layer.inverse(layer(x)[1], x).drift) < 1e-12
    both = make(2, 5, bidirectional=True)
    with pytest.raises(InputError, match="one-directional"):
        both.inverse(both(x)[1], x)


# ---- the Hamiltonian, eq. (4)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e-5, 1e-3, 0.1, 1.0, -1.0, 300.0])
def test_the_gradient_of_the_energy_is_the_field(scale):
    layer = make(2, 6, num_layers=2, stiffness=0.7)
    with torch.no_grad():
        layer.weight_hh_l1.mul_(scale)
    h = torch.randn(5, 12, **DOUBLE, requires_grad=True)
    u = torch.randn(5, 6, **DOUBLE)
    (gradient,) = torch.autograd.grad(layer.hamiltonian(h, u, layer=1).sum(), h)
    d_y, d_z = gradient.chunk(2, dim=-1)
    rate = torch.sigmoid(layer.time_scale_l1)
    expected = torch.cat([rate * d_z, -rate * d_y], dim=-1)
    torch.testing.assert_close(layer.vector_field(h, u, layer=1), expected, rtol=1e-9, atol=1e-9)


def test_the_energy_is_the_papers_up_to_a_term_without_the_state():
    layer = make(2, 6, stiffness=0.7)
    y, z, u = torch.randn(5, 6, **DOUBLE), torch.randn(5, 6, **DOUBLE), torch.randn(5, 2, **DOUBLE)
    w, drive = layer.weight_hh_l0, u @ layer.weight_ih_l0.T + layer.bias_ih_l0
    paper = 0.35 * (y**2).sum(-1) + 0.5 * (z**2).sum(-1) + (torch.log(torch.cosh(w * y + drive)) / w).sum(-1)
    constant = (torch.log(torch.cosh(drive)) / w).sum(-1)
    torch.testing.assert_close(layer.hamiltonian((y, z), u), paper - constant, rtol=1e-9, atol=1e-9)
    assert layer.hamiltonian((0 * y, 0 * z), u).tolist() == [0.0] * 5


def test_the_energy_is_accurate_across_its_series_in_single_precision():
    layer = make(1, 400, dtype=torch.float32)
    exact = make(1, 400)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.logspace(-9, 2, 400))
    exact.load_state_dict(layer.state_dict())
    y, u = torch.ones(3, 400), torch.tensor([[-9.0], [0.3], [40.0]])
    single = layer.hamiltonian((y, 0 * y), u)
    torch.testing.assert_close(
        single.double(), exact.hamiltonian((y.double(), 0 * y.double()), u.double()), rtol=2e-6, atol=0
    )
    assert torch.isfinite(layer.hamiltonian((1e4 * y, 0 * y), u)).all()


def test_the_map_keeps_the_energy_in_bounds_and_explicit_euler_does_not():
    layer = make(2, 6, step_size=0.2, stiffness=1.2)
    with torch.no_grad():
        layer.time_scale_l0.fill_(0.3)
    u, initial = torch.randn(3, 2, **DOUBLE), start(layer, 3)
    x = u.expand(10_000, 3, 2)
    found = layer.hamiltonian((initial[0][0], initial[1][0]), u)
    path = layer.inverse(layer(x, initial)[1], x, trajectory=True, tolerance=1e-9).trajectory[0]
    energy = layer.hamiltonian(path, x) / found
    assert ((energy - 1).abs() < 0.2).all()
    assert ((energy[-2000:].mean(0) - energy[:2000].mean(0)).abs() < 1e-3).all()
    h = torch.cat([initial[0][0], initial[1][0]], dim=-1)
    for _ in range(500):
        h = h + 0.2 * layer.vector_field(h, u)
    assert (layer.hamiltonian(h, u) > 2 * found).all()


# ---- volume, and the Hamiltonian (9) of the gradients


@pytest.mark.parametrize("span", [0.0, 1.0, 2.5])
def test_a_step_keeps_the_volume_of_every_unit(span):
    layer = make(2, 4, step_size=0.7, stiffness=3.0)
    with torch.no_grad():
        layer.weight_hh_l0.uniform_(-5, 5)
    u, spans = torch.randn(1, 1, 2, **DOUBLE), torch.full((1, 1), span, **DOUBLE)

    def step(h):
        y, z = layer(u, tuple(part[None, None] for part in h.chunk(2)), timespans=spans)[1]
        return torch.cat([y.flatten(), z.flatten()])

    jacobian = torch.autograd.functional.jacobian(step, torch.randn(8, **DOUBLE)).reshape(2, 4, 2, 4)
    blocks = torch.stack([jacobian[:, unit, :, unit] for unit in range(4)])
    torch.testing.assert_close(torch.linalg.det(blocks), torch.ones(4, **DOUBLE), rtol=0, atol=1e-12)
    torch.testing.assert_close(jacobian.pow(2).sum(), blocks.pow(2).sum())


def gradient_energy(layer, tangent, pre_activation, c):
    """Eq. (9): the Hamiltonian of (y_θ, z_θ), for θ with ∂(pre-activation)/∂θ = c at a fixed state."""
    y, z = tangent
    slope = 1 - torch.tanh(pre_activation) ** 2
    w = layer.weight_hh_l0.detach()
    return (layer.stiffness / 2 * y**2 + z**2 / 2 + slope * w * y**2 / 2 + slope * c * y).sum()


@pytest.mark.parametrize("name", ["weight_hh_l0", "weight_ih_l0", "bias_ih_l0"])
def test_gradients_in_w_v_and_b_take_symplectic_steps_of_their_own_hamiltonian(name):
    """d(y_n, z_n)/dθ by automatic differentiation follows symplectic Euler on (9), with the unit's step Δt·σ̂(c)."""
    layer = make(2, 3, step_size=0.4, stiffness=1.1)
    x = torch.randn(12, 1, 2, **DOUBLE)
    index = (1, 0) if name == "weight_ih_l0" else (1,)

    def states(value):
        parameter = getattr(layer, name).detach().clone()
        parameter = parameter.index_put(tuple(torch.tensor(i) for i in index), value)
        state, found = (torch.zeros(1, 1, 3, **DOUBLE),) * 2, []
        for u in x:
            _, state = torch.func.functional_call(layer, {name: parameter}, (u[None], state))
            found.append(torch.stack(state).flatten(1))
        return torch.stack(found)

    value = getattr(layer, name).detach()[index].clone()
    path = torch.cat([torch.zeros(1, 2, 3, **DOUBLE), states(value)])
    tangents = torch.autograd.functional.jacobian(states, value)
    w, g = layer.weight_hh_l0.detach(), layer.effective_step().detach()
    y_t = z_t = torch.zeros(3, **DOUBLE)
    one = torch.nn.functional.one_hot(torch.tensor(1), 3)
    for n, u in enumerate(x[:, 0]):
        before = path[n, 0].detach()
        c = one * {"weight_hh_l0": before, "weight_ih_l0": u[0], "bias_ih_l0": 1.0}[name]
        y_free = y_t.clone().requires_grad_()
        drive = u @ layer.weight_ih_l0.detach().T + layer.bias_ih_l0.detach()
        (slope,) = torch.autograd.grad(gradient_energy(layer, (y_free, z_t), w * before + drive, c), y_free)
        z_t = z_t - g * slope
        y_t = y_t + g * z_t
        torch.testing.assert_close(torch.stack([y_t, z_t]), tangents[n].detach(), rtol=1e-10, atol=1e-12)


def test_gradients_in_c_do_not_follow_that_hamiltonian():
    """(8) and (9) leave c out: its gradient is also driven by z and by the force, here from a state at rest."""
    layer = make(1, 1)
    y, z = torch.zeros(1, 1, 1, **DOUBLE), torch.ones(1, 1, 1, **DOUBLE)
    with torch.no_grad():
        layer.bias_ih_l0.zero_()
    layer(torch.zeros(1, 1, 1, **DOUBLE), (y, z))[0].sum().backward()
    assert layer.time_scale_l0.grad.abs().item() > 1e-3
    assert layer.weight_hh_l0.grad.abs().item() == 0
