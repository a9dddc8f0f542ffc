"""The shared contract of every audit: its result, and the check that runs it, judges it and names it on the page."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sostenuto.results import Outcome, Record

if TYPE_CHECKING:
    from sostenuto.audits.context import AuditContext

Need = Literal["y", "classes", "train", "module", "state"]


@dataclass(frozen=True, kw_only=True)
class AuditResult(Record, ABC):
    """What an audit found: plain numbers, a sentence, a figure, and how to get the same numbers again.

    A subclass is a frozen dataclass that adds its numbers and defines `summary` and `plot`. ``model`` names the class
    that was audited, ``method`` says in a sentence how it was measured, ``seed`` and ``settings`` repeat it,
    ``checksum`` changes when any input value or target does, and ``environment`` lists versions and device.
    """

    model: str
    method: str
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    checksum: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @abstractmethod
    def summary(self) -> str:
        """Say what was found in plain English."""

    @abstractmethod
    def plot(self, ax: Any) -> None:
        """Draw the answer on a matplotlib Axes."""


class Judged(NamedTuple):
    """An outcome, its label of one or two words, and what it was judged by where the summary does not say."""

    outcome: Outcome
    label: str
    basis: str = ""


UNDECIDED = "Undecided"
"""The label where an interval holds a threshold, so that the numbers allow either word."""


@dataclass(frozen=True)
class Check:
    """One question of an audit: how it is asked, judged and shown. A method file that belongs to a report ends in one.

    Args:
        name: its key in a report, in options and in files.
        title: the question, as the page puts it.
        caption: what the figure shows.
        order: its place on the page; checks are sorted by it.
        result: the record that `run` returns, by which JSON is read back.
        needs: what it cannot do without: ``"y"`` true answers, ``"classes"`` true classes, ``"train"`` the training
            part, ``"module"`` a torch module, with its gradients and weights, ``"state"`` answers that go through its
            recurrent layer.
        run: measures, or raises `InputError` with the reason why it cannot.
        judge: turns a result into an outcome, given the thresholds.
        thresholds: the defaults of what a user may set, by name.
        describes: whether it says what is so, without a word on whether that is good.
        number: the one number that ``--fail-if`` compares, and differences between two models are told in.
    """

    name: str
    title: str
    caption: str
    order: int
    result: type[AuditResult]
    run: Callable[["AuditContext"], AuditResult]
    judge: Callable[[Any, Mapping[str, float]], Judged]
    needs: tuple[Need, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    number: Callable[[Any], float | None] | None = None
    describes: bool = False


def graded(
    interval: tuple[float, float], good: float, bad: float, labels: tuple[str, str, str], basis: str = ""
) -> Judged:
    """Grade a loss by its interval: up to ``good``, beyond ``bad``, or between; undecided where it holds a threshold.

    >>> graded((0.0, 0.02), 0.05, 0.25, ("Steady", "Wavers", "Breaks")).label
    'Steady'
    >>> graded((0.04, 0.06), 0.05, 0.25, ("Steady", "Wavers", "Breaks")).label
    'Undecided'
    """
    low, high = interval
    if high <= good:
        return Judged("good", labels[0], basis)
    if low > bad:
        return Judged("bad", labels[2], basis)
    if low > good and high <= bad:
        return Judged("caution", labels[1], basis)
    return Judged("unknown", UNDECIDED, basis)


def points(share: float) -> str:
    """Write a share in points of a hundred, with a true minus.

    >>> points(-0.0123)
    '−1.2'
    """
    return f"{100 * share:.1f}".replace("-", "−")
