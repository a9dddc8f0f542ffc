"""Divide sequences into two parts: stratified, random, by group or by time; seeded."""

from typing import get_args

import numpy as np
from jaxtyping import Float, Int

from sostenuto.checks import InputError, check_choice, require
from sostenuto.choices import Split
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.targets import class_rows, has_classes, real_rows, task_of

Indices = Int[np.ndarray, " part"]

_MOST_BINS = 10


def split(
    data: SequenceSet, fraction: float, *, method: Split = "stratified", seed: int = 0
) -> tuple[SequenceSet, SequenceSet]:
    """Divide ``data`` in two; the second part has about ``fraction`` of it, and both keep the order of ``data``.

    - ``"stratified"``: the same share of every class; a class of two or more is on both sides, one of a single
      sequence stays in the first. With a class for every step, a sequence counts for the rarest of its classes. A
      regression with one target is stratified by up to ten quantile bins; everything else (several targets, numbers for
      every step, forecasts, no targets) is divided at random.
    - ``"random"``: exactly ``round(fraction * n)``, drawn without replacement.
    - ``"group"``: whole groups (``data.groups``), drawn until the share is as near as that order allows.
    - ``"time"``: the last ones, in the order given. Windows cut from one series overlap: cut the series first
      (`sostenuto.data.tasks.forecast`).

    >>> data = SequenceSet([np.zeros((2, 1))] * 8, targets=np.array(["a"] * 4 + ["b"] * 4))
    >>> train, test = split(data, 0.25)
    >>> train.targets.tolist(), test.targets.tolist()
    (['a', 'a', 'a', 'b', 'b', 'b'], ['a', 'b'])
    """
    first, second = split_indices(data, fraction, method=method, seed=seed)
    return data.take(first), data.take(second)


def split_indices(
    data: SequenceSet, fraction: float, *, method: Split = "stratified", seed: int = 0
) -> tuple[Int[np.ndarray, " first"], Int[np.ndarray, " second"]]:
    """Return the sorted indices of the two parts that `split` makes."""
    check_choice("method", method, get_args(Split))
    if isinstance(fraction, bool) or not 0 < fraction < 1:
        raise InputError(f"expected a fraction above 0 and below 1, got {fraction!r}.")
    require(len(data) >= 2, "expected at least 2 sequences to divide", f"got {len(data)}", "bring more data")
    rng = np.random.default_rng(seed)
    if method == "time":
        chosen = np.arange(len(data) - _share(len(data), fraction), len(data))
    elif method == "group":
        chosen = _by_group(data, fraction, rng)
    else:
        labels = _labels(data, fraction) if method == "stratified" else None
        chosen = _at_random(len(data), fraction, rng) if labels is None else _by_label(labels, fraction, rng)
    second = np.zeros(len(data), dtype=bool)
    second[chosen] = True
    return np.flatnonzero(~second), np.flatnonzero(second)


def fold_indices(data: SequenceSet, count: int, *, method: Split = "stratified", seed: int = 0) -> list[Indices]:
    """Divide ``data`` into ``count`` folds of about one size, each drawn as `split` draws its second part.

    A class of a single sequence is in no stratified fold, as nothing could be learned of it while it is held out.

    >>> data = SequenceSet([np.zeros((2, 1))] * 6, targets=np.array(["a"] * 3 + ["b"] * 3))
    >>> [sorted(data.targets[fold].tolist()) for fold in fold_indices(data, 3)]
    [['a', 'b'], ['a', 'b'], ['a', 'b']]
    """
    folds, rest = [], np.arange(len(data))
    for left in range(count, 1, -1):
        first, second = split_indices(data.take(rest), 1 / left, method=method, seed=seed + left)
        folds.append(rest[second])
        rest = rest[first]
    labels = _labels(data, 1 / count) if method == "stratified" else None
    if labels is not None:
        rest = rest[np.bincount(labels)[labels[rest]] > 1]
    return [*folds, rest]


def _share(count: int, fraction: float) -> int:
    return min(max(round(fraction * count), 1), count - 1)


def _at_random(count: int, fraction: float, rng: np.random.Generator) -> Indices:
    return rng.permutation(count)[: _share(count, fraction)]


def _labels(data: SequenceSet, fraction: float) -> Int[np.ndarray, " n"] | None:
    """Give a stratum to every sequence, or None where there is nothing to stratify by."""
    if data.targets is None or task_of(data) == "forecast":
        return None
    if has_classes(data):
        rows = class_rows(data)[1]
        return rows if isinstance(rows, np.ndarray) else _rarest(rows)
    if task_of(data) == "sequence":
        return None
    targets = np.stack(real_rows(data)).reshape(len(data), -1)
    return _quantile_bins(targets[:, 0], fraction) if targets.shape[1] == 1 else None


def _rarest(rows: list[Int[np.ndarray, " _"]]) -> Int[np.ndarray, " n"]:
    """Give every sequence the class of its steps that fewest sequences have."""
    holders = np.bincount(np.concatenate([np.unique(row) for row in rows]))
    return np.array([min(np.unique(row), key=lambda each: holders[each]) for row in rows])


def _quantile_bins(targets: Float[np.ndarray, " n"], fraction: float) -> Int[np.ndarray, " n"]:
    count = len(targets)
    bins = min(max(int(count * min(fraction, 1 - fraction)), 1), _MOST_BINS)
    labels = np.empty(count, dtype=np.int64)
    labels[np.argsort(targets, kind="stable")] = np.arange(count) * bins // count
    return labels


def _by_label(labels: Int[np.ndarray, " n"], fraction: float, rng: np.random.Generator) -> Indices:
    counts = np.bincount(labels)
    if counts.max() < 2:
        return _at_random(len(labels), fraction, rng)
    quota = _quotas(counts, fraction)
    order = rng.permutation(len(labels))
    return np.concatenate([order[labels[order] == label][:size] for label, size in enumerate(quota)])


def _quotas(counts: Int[np.ndarray, " label"], fraction: float) -> Int[np.ndarray, " label"]:
    """Share out ``fraction`` of the total by largest remainder, then keep one of every class on either side."""
    exact = fraction * counts
    quota = np.floor(exact).astype(np.int64)
    left = _share(int(counts.sum()), fraction) - int(quota.sum())
    quota[np.argsort(quota - exact, kind="stable")[: max(left, 0)]] += 1
    return np.where(counts >= 2, np.clip(quota, 1, np.maximum(counts - 1, 1)), 0)


def _by_group(data: SequenceSet, fraction: float, rng: np.random.Generator) -> Indices:
    if data.groups is None:
        raise InputError("expected groups to divide by, got none; name the column that holds them.")
    names, member = np.unique(np.asarray(data.groups), return_inverse=True)
    member = member.reshape(-1)
    hint = "use method='stratified' or method='random'"
    require(len(names) >= 2, "expected at least 2 groups", f"got {len(names)}", hint)
    sizes, wanted = np.bincount(member), fraction * len(data)
    taken: list[int] = []
    total = 0
    for group in rng.permutation(len(names)).tolist():
        if abs(total + sizes[group] - wanted) < abs(total - wanted):
            taken.append(group)
            total += int(sizes[group])
    smallest = int(np.argmin(sizes))
    if not taken:
        taken = [smallest]
    elif len(taken) == len(names):
        taken.remove(smallest)
    return np.flatnonzero(np.isin(member, taken))
