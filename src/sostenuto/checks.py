"""Every input check and its message: what was expected, what came, what to do."""

import numbers
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeGuard


class SostenutoError(Exception):
    """Anything this library refuses to do, with a sentence for the person who asked."""


class InputError(SostenutoError, ValueError):
    """The caller's data or option is wrong; the message says what was expected, what came and what to do."""


class FileFormatError(InputError):
    """A file does not hold what its format promises.

    >>> str(FileFormatError("a.ts", "expected 3 channels", "got 2", line=7))
    'a.ts, line 7: expected 3 channels, got 2.'
    """

    def __init__(self, path: str | Path, expected: str, got: str, hint: str = "", *, line: int | None = None) -> None:
        where = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {sentence(expected, got, hint)}")
        self.path, self.line = str(path), line


class Stopped(KeyboardInterrupt):
    """The process was asked to end by the signal ``number``; the message says what is kept."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class MissingExtraError(SostenutoError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}; install it with: pip install 'sostenuto[{extra}]'")


def sentence(expected: str, got: str, hint: str = "") -> str:
    """Join the three parts of a message into one sentence.

    >>> sentence("expected a number", "got 'x'", "correct the cell")
    "expected a number, got 'x'; correct the cell."
    """
    return f"{expected}, {got}" + (f"; {hint}" if hint else "") + "."


def require(condition: bool, expected: str, got: str, hint: str = "") -> None:
    """Raise `InputError` with a full sentence unless ``condition`` holds."""
    if not condition:
        raise InputError(sentence(expected, got, hint))


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Refuse a ``value`` outside ``choices``.

    >>> check_choice("layout", "tbc", ("btc", "bct"))
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected layout to be one of 'btc', 'bct', got 'tbc'.
    """
    allowed = tuple(choices)
    if value not in allowed:
        listed = ", ".join(repr(choice) for choice in allowed)
        raise InputError(sentence(f"expected {name} to be one of {listed}", f"got {value!r}"))


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a real number, Python's or numpy's; no array, no tensor and no truth value.

    >>> is_number(2), is_number(True), is_number("2")
    (True, False, False)
    """
    return isinstance(value, (int, float, numbers.Real)) and not isinstance(value, bool)


def check_positive(name: str, value: float, *, zero: bool = False) -> None:
    """Refuse a number that is not finite and above zero (or at least zero)."""
    low = "at least 0" if zero else "above 0"
    # A graph being compiled knows comparisons of a symbolic number, and no math.isfinite.
    good = is_number(value) and value == value and abs(value) != float("inf")
    if not good or value < 0 or (value == 0 and not zero):
        hint = "pass the number itself, by .item()" if hasattr(value, "item") and not is_number(value) else ""
        raise InputError(sentence(f"expected {name} to be a finite number {low}", f"got {value!r}", hint))


def check_count(name: str, value: int, *, least: int = 1) -> None:
    """Refuse anything but a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(sentence(f"expected {name} to be a whole number of at least {least}", f"got {value!r}"))


def check_fraction(name: str, value: float, *, one: bool = False) -> None:
    """Refuse a number outside [0, 1), or [0, 1] where ``one`` is allowed."""
    high = "at most 1" if one else "below 1"
    if not is_number(value) or not 0 <= value <= 1 or (value == 1 and not one):
        raise InputError(sentence(f"expected {name} to be a number of at least 0 and {high}", f"got {value!r}"))


def check_flag(name: str, value: object) -> None:
    """Refuse anything but True and False, or 1 and 0: text such as "no" would count as true.

    >>> check_flag("bias", "no")
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected bias to be True or False, got 'no'.
    """
    if type(value).__name__ not in ("bool", "bool_") and not (isinstance(value, int) and value in (0, 1)):
        raise InputError(sentence(f"expected {name} to be True or False", f"got {value!r}"))


def shown(items: Sequence[object], most: int = 5) -> str:
    """List the first few ``items`` for a message.

    >>> shown([3, 1, 4, 1, 5, 9], most=3)
    '3, 1, 4, … (6 in all)'
    """
    text = ", ".join(str(item) for item in items[:most])
    return text if len(items) <= most else f"{text}, … ({len(items)} in all)"
