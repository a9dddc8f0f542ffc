"""The shared contract of every audit's answer."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from sostenuto.results import Record


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
