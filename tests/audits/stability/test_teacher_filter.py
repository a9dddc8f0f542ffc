# ruff: noqa: N803 (X is the name of the contract)
import json

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from sostenuto.audits import teacher_filter
from sostenuto.audits.stability.teacher_filter import TeacherFilter
from sostenuto.checks import InputError

STEPS = 24


class Student(nn.Module):
    """A linear recurrence h ← Wh + Ux, y = ch, W diagonal at the start."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.diag(torch.linspace(0.3, 0.8, width)))
        self.entering, self.reading = nn.Parameter(torch.ones(width) / 2), nn.Parameter(torch.ones(width) / width)

    def forward(self, x):
        state, found = x.new_zeros(len(x), len(self.weight)), []
        for step in range(x.shape[1]):
            state = state @ self.weight.T + x[:, step] * self.entering
            found.append(state @ self.reading)
        return torch.stack(found, 1)[:, :, None]


class Filter(nn.Module):
    """y_t = Σ_s ρ(s) x_{t−s}: a linear functional with the memory ρ."""

    def __init__(self, memory):
        super().__init__()
        self.memory = nn.Parameter(memory)

    def forward(self, x):
        lags = torch.arange(x.shape[1])
        places = lags[:, None] - lags
        kernel = torch.where(places >= 0, self.memory[places.clamp(min=0)], 0.0)
        return torch.einsum("st,btc->bsc", kernel, x)


@pytest.fixture(scope="module")
def X():  # noqa: N802
    return torch.randn(24, STEPS, 1, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def found(X):
    """A teacher that students can learn, and one that none of their width can: an echo of the remote past."""
    lags = torch.arange(64.0)
    teachers = {"fading": Filter(0.6**lags), "echo": Filter((lags == 20).float())}
    options = {"betas": (1e-4, 1e-3, 1e-2, 0.3), "epochs": 150, "learning_rate": 0.01, "horizon": 40}
    return teacher_filter(teachers, Student, (2, 4), X, **options)


def test_a_fading_teacher_passes_and_an_echo_does_not(found):
    fading, echo = found.teachers
    assert fading.kind == "exponential"
    assert fading.rate == pytest.approx(0.51, rel=0.05)
    assert fading.passes
    assert 1e-3 <= fading.radius < 0.3
    assert not echo.approximated
    assert echo.radius == 0.0
    assert found.passed == (fading,)
    assert found.holds
    assert "1 of them stably; the memory of those is exponential, as the theorem says." in found.summary()


def test_the_error_grows_with_the_change_and_starts_where_the_student_is(found):
    for teacher in found.teachers:
        for curve in teacher.students:
            assert list(curve.error) == sorted(curve.error)
            assert curve.error[0] >= curve.start
    assert [curve.width for curve in found.teachers[0].students] == [2, 4]


def test_an_unstable_approximation_fails_the_filter(X):
    """With one large radius alone nothing stays near, so that approximation is there and stability is not."""
    result = teacher_filter({"fading": Filter(0.6 ** torch.arange(64.0))}, Student, (2,), X, betas=(0.6,), epochs=150)
    assert result.teachers[0].approximated
    assert not result.teachers[0].stable
    assert "the theorem says nothing" in result.summary()


def test_the_record_survives_json_and_draws(found):
    assert TeacherFilter.from_dict(json.loads(found.to_json())) == found
    ax = Figure().add_subplot()
    found.plot(ax)
    assert ax.has_data()
    assert ax.get_xlabel()


def test_it_repeats_and_leaves_teachers_and_random_numbers_alone(X):
    teacher = Filter(0.6 ** torch.arange(64.0)).train()
    before, state = teacher.memory.detach().clone(), torch.get_rng_state()
    options = {"betas": (1e-3,), "epochs": 5}
    first = teacher_filter({"one": teacher}, Student, (2,), X, **options)
    assert teacher_filter({"one": teacher}, Student, (2,), X, **options) == first
    assert torch.equal(teacher.memory, before)
    assert teacher.memory.grad is None
    assert teacher.training
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teachers": {}}, "expected at least one teacher, got none"),
        ({"widths": (4, 2)}, r"expected increasing widths, got \[4, 2\]"),
        ({"betas": ()}, r"expected increasing betas, got \[\]"),
        ({"student": lambda _: nn.Linear(1, 2)}, r"expected a student whose answers have the teacher's shape"),
        ({"teachers": {"last": nn.Flatten()}}, "expected a teacher that answers at every step"),
    ],
)
def test_bad_input_is_refused(X, changes, message):
    given = {"teachers": {"one": Filter(torch.ones(64))}, "student": Student, "widths": (2,), "X": X} | changes
    with pytest.raises(InputError, match=message):
        teacher_filter(**given, epochs=1)
