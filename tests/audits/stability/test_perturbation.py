# ruff: noqa: N803, N806 (X is the name of the contract)
import numpy as np
import pytest
import torch
from torch import nn

from sostenuto.audits.stability.perturbation import perturbation_error, stability_radius
from sostenuto.audits.stability.weight_ball import WeightBall, project, spectral_norm, steepest
from sostenuto.checks import InputError
from tests.laws.audit_laws import AuditLaws


class GradientLaws(AuditLaws):
    # Ascent needs gradients; models without weights have no ball around them.
    test_the_model_is_asked_in_evaluation_mode_without_gradients = None
    test_random_numbers_are_left_as_they_were = None
    test_a_model_that_draws_repeats_too = None


class TestErrorLaws(GradientLaws):
    def ask(self, model, X, y, **options):
        return perturbation_error(model, (0.01, 0.1), X, draws=2, ascent_steps=2, **options)


class TestRadiusLaws(GradientLaws):
    def ask(self, model, X, y, **options):
        return stability_radius(model, X, 0.5, accuracy=0.5, draws=1, ascent_steps=1, **options)


class Diagonal(nn.Module):
    """y = Σ_k c_k w_k^t * x: a linear recurrence whose error under a change is known."""

    def __init__(self, decay):
        super().__init__()
        self.decay = nn.Parameter(torch.tensor([decay], dtype=torch.float64))

    def forward(self, x):
        h, states = x.new_zeros(len(x), 1), []
        for t in range(x.shape[1]):
            h = self.decay * h + x[:, t]
            states.append(h)
        return torch.stack(states, 1)


def test_the_worst_change_of_a_linear_map_is_found():
    """Of y = W x with |x|_∞ = 1 the worst W of spectral norm β moves y by β max |x|₂ along one output."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False).double()
    X = torch.ones(1, 1, 3, dtype=torch.float64)
    found = perturbation_error(model, (0.1, 1.0), X, ascent_steps=40)
    np.testing.assert_allclose(found.error, [0.1 * 3**0.5, 3**0.5], rtol=1e-6)
    assert found.random[1] < found.worst[1]
    assert found.start == 0


def test_recurrent_weights_are_pushed_towards_instability():
    X = torch.ones(1, 30, 1, dtype=torch.float64)
    found = perturbation_error(Diagonal(0.5), (0.1, 0.4), X, draws=4, ascent_steps=5)

    def last(decay):
        return sum(decay**k for k in range(30))

    expected = [last(0.5 + beta) - last(0.5) for beta in (0.1, 0.4)]
    np.testing.assert_allclose(found.error, expected, rtol=1e-6)


def test_the_sobolev_norm_adds_the_change_from_step_to_step():
    X = torch.ones(1, 2, 1, dtype=torch.float64)
    plain = perturbation_error(Diagonal(0.5), (0.1,), X)
    smooth = perturbation_error(Diagonal(0.5), (0.1,), X, norm="sobolev")
    assert plain.error[0] == pytest.approx(0.1)
    assert smooth.error[0] == pytest.approx(0.2)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_the_sobolev_norm_is_a_sum_of_two_suprema_at_each_step(batch_size):
    """wang2024, eq. (11): one sequence has the largest gap, the other the largest change, at the same step."""
    X = torch.tensor([[[1.0], [1.0], [1.0]], [[-1.0], [1.0], [0.0]]])
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    offsets = torch.tensor([[[2.0], [2.0], [0.0]], [[-1.0], [1.0], [5.0]]])
    options = {"target": X + offsets, "norm": "sobolev", "batch_size": batch_size}
    assert perturbation_error(model, (0.0,), X, **options).start == pytest.approx(5.0 + 4.0)
    # The third step of the second sequence is padding: neither it nor the step into it counts.
    short = perturbation_error(model, (0.0,), X, lengths=[3, 2], **options)
    assert short.start == pytest.approx(2.0 + 2.0)


def test_targets_and_losses():
    torch.manual_seed(0)
    X = torch.randn(20, 4, 2)
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    by_module = perturbation_error(model, (0.0, 0.1), X, target=other)
    by_values = perturbation_error(model, (0.0, 0.1), X, target=other(X).detach())
    assert by_module.error == by_values.error
    assert by_module.start == by_module.error[0] > 0

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)

        def forward(self, x):
            return self.head(x[:, -1])

    loss = perturbation_error(Last(), (0.1, 1.0), X, y=torch.arange(20) % 2, norm="loss")
    assert loss.start < loss.error[0] < loss.error[1]
    with pytest.raises(InputError, match=r"expected a target of the model's output shape \(20, 4, 2\), got \(3,\)"):
        perturbation_error(model, (0.1,), X, target=torch.zeros(3))


@pytest.mark.parametrize("targets", [torch.arange(12) % 2, torch.linspace(-1, 1, 12).double()])
def test_a_loss_is_the_same_in_parts_and_holds_one_graph(targets):
    torch.manual_seed(0)
    x = torch.randn(12, 5, 2, dtype=torch.float64)
    alive, most = set(), [0]

    class Hold(torch.autograd.Function):
        """Note which batches' graphs exist at the same time."""

        @staticmethod
        def forward(ctx, values, key):
            ctx.key = key
            if values.requires_grad:
                alive.add(key)
                most[0] = max(most[0], len(alive))
            return values.clone()

        @staticmethod
        def backward(ctx, gradient):
            alive.discard(ctx.key)
            return gradient, None

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(2, 2 if targets.dtype == torch.long else 1, dtype=torch.float64)
            self.calls = 0

        def forward(self, values):
            self.calls += 1
            return Hold.apply(self.line(values).mean(1), self.calls)

    torch.manual_seed(1)
    model = Model()
    options = {"y": targets, "norm": "loss", "draws": 2, "ascent_steps": 3}
    whole = perturbation_error(model, [0.1, 1.0], x, **options)
    parts = perturbation_error(model, [0.1, 1.0], x, batch_size=5, **options)
    np.testing.assert_allclose(parts.error, whole.error, rtol=1e-10)
    assert most[0] == 1


def test_the_radius_of_a_known_recurrence():
    """E(β) of the decay w over T steps is known, so the radius for a tolerance is the root of a polynomial."""
    X = torch.ones(1, 10, 1, dtype=torch.float64)
    found = stability_radius(Diagonal(0.5), X, 1.0, accuracy=0.01, draws=4, ascent_steps=3)
    roots = np.roots([*([1.0] * 10)][::-1] - np.eye(10)[-1] * (sum(0.5**k for k in range(10)) + 1.0))
    exact = max(root.real for root in roots if abs(root.imag) < 1e-9) - 0.5
    assert exact * 0.99 <= found.radius <= exact * 1.0001
    assert not found.limited
    assert found.error <= 1.0


def test_a_radius_beyond_the_search_and_one_that_is_not_there():
    X = torch.ones(1, 2, 1, dtype=torch.float64)
    assert stability_radius(Diagonal(0.5), X, 100.0).limited
    missing = stability_radius(Diagonal(0.5), X, 0.1, target=torch.full((1, 2, 1), 9.0))
    assert missing.radius is None
    assert "already" in missing.summary()


def test_the_ball():
    generator = torch.Generator().manual_seed(0)
    model = nn.LSTM(3, 4)
    ball = WeightBall(model)
    for part in ball.draw(generator, 0.3):
        assert spectral_norm(part).item() == pytest.approx(0.3, rel=1e-5)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_projections_and_directions_are_those_of_singular_values(shape, rank):
    torch.manual_seed(0)
    matrix = torch.randn(shape[0], rank, dtype=torch.float64) @ torch.randn(rank, shape[1], dtype=torch.float64)
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    torch.testing.assert_close(project(matrix, 0.5), left * sizes.clamp(max=0.5) @ right)
    torch.testing.assert_close(project(matrix, 100.0), matrix)
    best = steepest(matrix)
    torch.testing.assert_close(best, left[:, :rank] @ right[:rank])
    assert spectral_norm(best).item() == pytest.approx(1.0)
    assert (best * matrix).sum().item() == pytest.approx(torch.linalg.matrix_norm(matrix, ord="nuc").item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"betas": ()}, "expected at least one beta, got none"),
        ({"betas": (-0.1,)}, "expected beta to be a finite number at least 0"),
        ({"norm": "energy"}, "expected norm to be one of 'output', 'sobolev', 'loss'"),
        ({"norm": "loss"}, "expected y with norm='loss'"),
        ({"draws": 0}, "expected draws to be a whole number of at least 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    settings = {"betas": (0.1,), **options}
    with pytest.raises(InputError, match=message):
        perturbation_error(nn.Linear(1, 1), settings.pop("betas"), torch.ones(2, 3, 1), **settings)
