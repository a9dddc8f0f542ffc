"""The teacher–student filter: which functionals can be approximated stably, and by which law they remember."""

import copy
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.batches import read_sequences
from sostenuto.audits.memory.function import memory_function
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.stability.perturbation import perturbation_error
from sostenuto.checks import check_count, check_positive, require
from sostenuto.report.numbers import count, number
from sostenuto.results import Numbers, Record
from sostenuto.training.processes import environment

METHOD = (
    "Students of growing width learn the teacher's answers by Adam on the squared error, with the best weights seen "
    "kept; their error and its growth under random and worst-case changes of the weights by the norm of Definition 3.4 "
    "of wang2024, over the teacher's own largest answer; the memory by the Heaviside probe."
)


@dataclass(frozen=True, kw_only=True)
class StudentCurve(Record):
    """A student of one width: E_m(0) as ``start``, and E_m(β) at each β, as shares of the teacher's size."""

    width: int
    start: float
    error: Numbers


@dataclass(frozen=True, kw_only=True)
class TeacherVerdict(Record):
    """What was found of one teacher.

    ``approximated`` says that the widest student errs by at most the tolerance; ``radius`` is the largest β at which it
    still does, and no student wide enough to do so at 0 fails sooner (0: none); ``stable`` that this radius is above 0.
    ``kind`` is the law of the teacher's memory, as `MemoryFunction` has it.
    """

    name: str
    kind: str
    rate: float | None
    half_life: float | None
    memory: Numbers
    students: tuple[StudentCurve, ...]
    approximated: bool
    stable: bool
    radius: float

    @property
    def passes(self) -> bool:
        """Say whether the teacher is approximated, and stably."""
        return self.approximated and self.stable


@dataclass(frozen=True, kw_only=True)
class TeacherFilter(AuditResult):
    """All teachers, those that pass the filter among them, and the law of the memory of each."""

    widths: tuple[int, ...]
    betas: Numbers
    tolerance: float
    horizon: int
    teachers: tuple[TeacherVerdict, ...]

    @property
    def passed(self) -> tuple[TeacherVerdict, ...]:
        """List the teachers that are approximated stably."""
        return tuple(teacher for teacher in self.teachers if teacher.passes)

    @property
    def holds(self) -> bool:
        """Say whether what the theorem says was found: all that pass forget exponentially, or in finite time."""
        return all(teacher.kind in ("exponential", "finite") for teacher in self.passed)

    def summary(self) -> str:
        """Say how many teachers pass the filter, and by which laws they forget."""
        passed = self.passed
        near = sum(teacher.approximated for teacher in self.teachers)
        said = (
            f"Of {count(len(self.teachers))} teachers {near} can be approximated to {number(self.tolerance)} of their "
        )
        said += f"size with up to {max(self.widths)} units, {len(passed)} of them stably"
        if not passed:
            return f"{said}, so that the theorem says nothing about these."
        kinds = sorted({teacher.kind for teacher in passed})
        return f"{said}; the memory of those is {' or '.join(kinds)}" + (
            ", as the theorem says." if self.holds else ", which is not exponential as the theorem says."
        )

    def plot(self, ax: Any) -> None:
        """Draw E(β) of the widest student of every teacher, those that pass the filter solid."""
        for teacher in self.teachers:
            style = "-" if teacher.passes else ":"
            ax.plot(self.betas, teacher.students[-1].error, style, label=f"{teacher.name}: {teacher.kind}")
        ax.axhline(self.tolerance, color="gray", linestyle="--", label="tolerance")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("largest change of a weight matrix")
        ax.set_ylabel("error, share of the teacher's size")
        ax.legend()


def teacher_filter(
    teachers: dict[str, nn.Module],
    student: Callable[[int], nn.Module],
    widths: Sequence[int],
    X: Any,  # noqa: N803
    *,
    betas: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1),
    tolerance: float = 0.1,
    epochs: int = 200,
    learning_rate: float = 0.005,
    draws: int = 3,
    ascent_steps: int = 5,
    horizon: int | None = None,
    seed: int = 0,
) -> TeacherFilter:
    r"""Keep the teachers that students of growing width approximate stably, and look how those remember.

    With E_m(β) = sup over weights within β of the width-m student's, of the distance to the teacher, a teacher is

        approximated   E_m(0) ≤ ε at the largest m
        stable         some β₀ > 0 has E_m(β₀) ≤ ε at every m with E_m(0) ≤ ε, the largest among them

    and passes where both hold: finitely many widths stand for the limit of Definition 3.5. Distances are those of
    Definition 3.4, over the teacher's own largest answer. Theorem 3.9 says that what passes forgets exponentially.
    Reference: wang2024, section 3.3 and figure 3; definitions as in ``docs/errata.md`` (wang2024.5, wang2024.7).

    Args:
        teachers: names and models, ``(batch, time, channel)`` to ``(batch, time, out)``; they are left as they were.
        student: makes a fresh student of a given width, of the teachers' input and output.
        widths: increasing.
        X: sequences of equal length, as for `noise_accuracy`: a quarter of them is kept from the students and judges.
        betas: radii of the change of the weights, increasing.
        tolerance: ε, a share of the teacher's largest answer.
        epochs: of training, all sequences at once.
        learning_rate: of Adam.
        draws: random changes at each radius.
        ascent_steps: gradient steps from each.
        horizon: of the memory function; one less than the steps of ``X`` if left out.
        seed: of students and changes.

    >>> _ = torch.manual_seed(0)
    >>> class Leak(nn.Module):
    ...     def __init__(self, width=1):
    ...         super().__init__()
    ...         self.rnn, self.head = nn.RNN(1, width, batch_first=True), nn.Linear(width, 1)
    ...     def forward(self, x):
    ...         return self.head(self.rnn(x)[0])
    >>> found = teacher_filter({"small": Leak(2)}, Leak, [2, 4], torch.randn(16, 12, 1), epochs=50, tolerance=0.5)
    >>> found.teachers[0].kind, found.holds
    ('exponential', True)
    """
    _check(teachers, widths, betas, tolerance)
    for name, value in (("epochs", epochs), ("draws", draws)):
        check_count(name, value)
    check_positive("learning_rate", learning_rate)
    check_count("seed", seed, least=0)
    first = next(iter(teachers.values()))
    values, lengths = read_sequences(first, X, None)
    require(lengths is None, "expected sequences of equal length", "got unequal ones")
    require(len(values) >= 4, "expected at least 4 sequences", f"got {len(values)}")
    split = len(values) - max(len(values) // 4, 1)
    span = values.shape[1] - 1 if horizon is None else horizon
    found = []
    for name, teacher in teachers.items():
        lesson = _Lesson(teacher, values[:split], values[split:], seed)
        curves = []
        for width in widths:
            learned = lesson.teach(student, width, epochs, learning_rate)
            curves.append(lesson.judge(learned, width, tuple(betas), draws, ascent_steps))
        known = memory_function(teacher, span, input_size=values.shape[2], amplitudes=(1.0,), seed=seed)
        found.append(_verdict(name, known, curves, tuple(betas), tolerance))
    device, _ = place_of(first)
    return TeacherFilter(
        model=type(first).__name__,
        method=METHOD,
        seed=seed,
        settings={"epochs": epochs, "learning_rate": learning_rate, "draws": draws, "ascent_steps": ascent_steps},
        checksum=hashlib.sha256(values.double().numpy().tobytes()).hexdigest()[:16],
        environment=environment(str(device)),
        widths=tuple(widths),
        betas=tuple(float(beta) for beta in betas),
        tolerance=tolerance,
        horizon=span,
        teachers=tuple(found),
    )


class _Lesson:
    """One teacher's answers: some for the students to learn from, some to judge them by."""

    def __init__(self, teacher: nn.Module, learned: Tensor, judged: Tensor, seed: int) -> None:
        self.device, self.dtype = place_of(teacher)
        self.learned, self.judged = learned.to(self.device, self.dtype), judged.to(self.device, self.dtype)
        self.seed = seed
        with audited(teacher, seed):
            self.answers, self.wanted = teacher(self.learned), teacher(self.judged)
        good = all(isinstance(one, Tensor) and one.ndim == 3 for one in (self.answers, self.wanted))
        require(good, "expected a teacher that answers at every step with one tensor", "got another answer")
        finite = bool(self.answers.isfinite().all()) and bool(self.wanted.isfinite().all())
        require(finite, "expected finite answers of the teacher", "got NaN or infinity")
        sizes = self.judged.abs().amax((1, 2)).clamp(min=torch.finfo(self.dtype).tiny)
        self.size = max(float((self.wanted.abs().amax((1, 2)) / sizes).max()), 1e-300)

    def teach(self, student: Callable[[int], nn.Module], width: int, epochs: int, rate: float) -> nn.Module:
        """Train a fresh student from its own seed, and keep the weights with the least error seen."""
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.default_generator.manual_seed(self.seed + width)
            model = student(width).to(self.device, self.dtype).train()
            optimizer = torch.optim.Adam(model.parameters(), lr=rate)
            best, kept = math.inf, copy.deepcopy(model.state_dict())
            for _ in range(epochs):
                loss = self._loss(model)
                if loss.item() < best:
                    best, kept = loss.item(), copy.deepcopy(model.state_dict())
                optimizer.zero_grad()
                loss.backward()
                # Where a student is near instability a single step may throw it far away.
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            if self._loss(model).item() < best:
                kept = copy.deepcopy(model.state_dict())
        model.load_state_dict(kept)
        return model.eval()

    def judge(self, student: nn.Module, width: int, betas: Numbers, draws: int, ascent_steps: int) -> StudentCurve:
        """Measure E_m(β) against the teacher's answers, as shares of its size."""
        options: dict[str, Any] = {"draws": draws, "ascent_steps": ascent_steps, "seed": self.seed}
        found = perturbation_error(student, betas, self.judged, target=self.wanted, **options)
        shares = tuple(value / self.size for value in found.error)
        return StudentCurve(width=width, start=found.start / self.size, error=shares)

    def _loss(self, model: nn.Module) -> Float[Tensor, ""]:
        found = model(self.learned)
        require(
            found.shape == self.answers.shape,
            f"expected a student whose answers have the teacher's shape {tuple(self.answers.shape)}",
            f"got {tuple(found.shape)}",
        )
        return (found - self.answers).square().mean()


def _verdict(name: str, known: Any, curves: list[StudentCurve], betas: Numbers, tolerance: float) -> TeacherVerdict:
    """Decide whether a teacher is approximated, and up to which change of the weights."""
    approximated = curves[-1].start <= tolerance
    able = [curve for curve in curves if curve.start <= tolerance]
    reached = [beta for place, beta in enumerate(betas) if all(one.error[place] <= tolerance for one in able)]
    radius = max(reached) if approximated and reached else 0.0
    return TeacherVerdict(
        name=name,
        kind=known.kind,
        rate=known.rate,
        half_life=known.half_life,
        memory=known.memory,
        students=tuple(curves),
        approximated=approximated,
        stable=radius > 0,
        radius=radius,
    )


def _check(teachers: dict[str, nn.Module], widths: Sequence[int], betas: Sequence[float], tolerance: float) -> None:
    require(len(teachers) > 0, "expected at least one teacher", "got none")
    check_positive("tolerance", tolerance)
    for name, values in (("widths", widths), ("betas", betas)):
        rising = len(values) > 0 and all(low < high for low, high in pairwise(values))
        require(rising, f"expected increasing {name}", f"got {list(values)}")
    for width in widths:
        check_count("width", width)
    for beta in betas:
        check_positive("beta", beta)
