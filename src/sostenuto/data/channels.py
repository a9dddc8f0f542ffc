"""Bring the channels of new data into the order of training, by their names."""

from collections.abc import Sequence

import numpy as np

from sostenuto.checks import InputError, shown


def arrange_channels(
    sequences: list[np.ndarray], names: Sequence[str], expected: Sequence[str], categorical: Sequence[str] = ()
) -> list[np.ndarray]:
    """Put the channels ``names`` of every ``(time, channel)`` array into the order ``expected``.

    Unknown and absent channels are refused by name. A value of a ``categorical`` column that does not occur in the data
    is a channel of zeros; one that training did not know is refused.

    >>> arrange_channels([np.array([[1.0, 2.0]])], ("b", "a"), ("a", "b"))[0].tolist()
    [[2.0, 1.0]]
    >>> arrange_channels([np.array([[1.0]])], ("c",), ("a",))
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected the channels 'a' of training, got those without 'a', with 'c'; rename them.
    """
    if tuple(names) == tuple(expected):
        return sequences
    unknown, absent = [n for n in names if n not in expected], [n for n in expected if n not in names]
    for column in categorical:
        known = [name for name in expected if name.startswith(f"{column}=")]
        new = [repr(name.removeprefix(f"{column}=")) for name in unknown if name.startswith(f"{column}=")]
        if new:
            categories = shown([repr(name.removeprefix(f"{column}=")) for name in known])
            raise InputError(
                f"expected the categories of training ({categories}) in column {column!r}, got {shown(new)}; "
                "drop these rows or train with them."
            )
        absent = [name for name in absent if name not in known]
    if unknown or absent:
        found = [f"without {_quoted(absent)}"] * bool(absent) + [f"with {_quoted(unknown)}"] * bool(unknown)
        hint = "rename them" if unknown and absent else "add them" if absent else f"pass ignore={unknown[0]!r}"
        got = ", ".join(found)
        raise InputError(f"expected the channels {_quoted(expected)} of training, got those {got}; {hint}.")
    places = [names.index(name) if name in names else len(names) for name in expected]
    return [np.pad(sequence, ((0, 0), (0, 1)))[:, places] for sequence in sequences]


def _quoted(names: Sequence[str]) -> str:
    return shown([repr(name) for name in names], most=12)
