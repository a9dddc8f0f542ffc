"""`Encoding`: what is learned on the training part and stored with a run, so that prediction needs nothing else."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from numpy.typing import DTypeLike
from torch import Tensor

from sostenuto.checks import InputError, check_choice, require, shown
from sostenuto.choices import Missing, Scaling, Task
from sostenuto.data.batch import SequenceBatch, as_sequences, as_timespans
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.scaling import channel_scale, scaled
from sostenuto.data.targets import class_rows, has_classes, is_number, real_rows, sort_classes, task_of


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
        differences = [f"without {_quoted(absent)}"] * bool(absent) + [f"with {_quoted(unknown)}"] * bool(unknown)
        hint = "rename them" if unknown and absent else "add them" if absent else f"pass ignore={unknown[0]!r}"
        got = ", ".join(differences)
        raise InputError(f"expected the channels {_quoted(expected)} of training, got those {got}; {hint}.")
    places = [names.index(name) if name in names else len(names) for name in expected]
    return [np.pad(sequence, ((0, 0), (0, 1)))[:, places] for sequence in sequences]


def _quoted(names: Sequence[str]) -> str:
    return shown([repr(name) for name in names], most=12)


SAME_UNIT = 1e-6
"""Units of time that differ by less than this part are the same, up to rounding."""


@dataclass(frozen=True)
class Encoding:
    """The scaling of every channel, the order of the classes and the unit of the target, as the training part has them.

    Encoded values are ``(value − center) / scale`` per channel, NaN kept until ``missing`` says what becomes of it.
    Encoded targets are class indices ``(n,)`` or, per step, ``(n, time)``; numbers are ``(n, output_size)``, per step
    ``(n, time, output_size)``, for a forecast ``(n, horizon, channel)``, in units of ``target_scale`` around
    ``target_center``, padded with 0. A forecast of the input's own channels keeps the input's scaling, so that its
    targets and its inputs are in the same unit. Channels are matched by name where both sides have names. Time spans
    are in units of ``median_span``, the median of training's, and in the ``time_unit`` of training, whatever the median
    of the data at hand.

    >>> train = SequenceSet([np.zeros((3, 1)), np.ones((2, 1))], targets=np.array(["up", "down"]))
    >>> encoding = Encoding.fit(train)
    >>> encoding.classes, encoding.encode(train).targets.tolist(), encoding.decode_classes([1, 0]).tolist()
    (('down', 'up'), [1, 0], ['up', 'down'])
    >>> Encoding.from_dict(encoding.to_dict()) == encoding
    True
    """

    task: Task
    num_channels: int
    is_tokens: bool
    vocabulary_size: int
    scaling: Scaling
    missing: Missing
    center: tuple[float, ...]
    scale: tuple[float, ...]
    median_span: float
    classes: tuple[str, ...]
    target_center: tuple[float, ...]
    target_scale: tuple[float, ...]
    has_step_targets: bool
    target_shape: tuple[int, ...]
    channel_names: tuple[str, ...]
    target_name: str
    longest: int
    time_unit: float
    categorical: tuple[str, ...]

    @classmethod
    def fit(
        cls,
        train: SequenceSet,
        *,
        scaling: Scaling = "standard",
        missing: Missing = "refuse",
        vocabulary_size: int = 0,
    ) -> "Encoding":
        """Learn the encoding of ``train``.

        ``scaling`` is ``"standard"`` (mean 0, standard deviation 1), ``"minmax"`` (0 to 1) or ``"none"``, per channel,
        over what was observed; a constant channel is only centered. Tokens are never scaled; ``vocabulary_size``
        reserves ids that the training part happens not to use.
        """
        check_choice("scaling", scaling, ("standard", "minmax", "none"))
        check_choice("missing", missing, ("refuse", "mask", "interpolate"))
        require(len(train) > 0, "expected at least one sequence", "got none")
        task, is_tokens = task_of(train), train.is_tokens
        center: tuple[float, ...] = ()
        scale: tuple[float, ...] = ()
        if is_tokens:
            scaling = "none"
            highest = max(int(ids.max()) for ids in _token_ids(train.sequences))
            vocabulary_size = max(vocabulary_size, highest + 1)
        else:
            vocabulary_size = 0
            center, scale = channel_scale(as_sequences(train.sequences, allow_nan=True), scaling)
        return cls(
            task=task,
            num_channels=train.num_channels,
            is_tokens=is_tokens,
            vocabulary_size=vocabulary_size,
            scaling=scaling,
            missing=missing,
            center=center,
            scale=scale,
            median_span=1.0 if train.timespans is None else float(np.median(np.concatenate(list(train.timespans)))),
            has_step_targets=task == "sequence",
            channel_names=train.channel_names,
            target_name=train.target_name,
            longest=max(len(sequence) for sequence in train.sequences),
            time_unit=train.time_unit,
            categorical=train.categorical,
            **_target_fields(train, center, scale),
        )

    @property
    def forecast_channels(self) -> tuple[int, ...]:
        """The input channels that are forecast: all, the one the target is named after, or none that is known."""
        return _forecast_channels(self.task, self.target_shape, self.channel_names, len(self.center), self.target_name)

    @property
    def input_size(self) -> int:
        """Channels a layer sees: twice the raw ones where ``missing="mask"`` appends indicators; 1 for tokens."""
        return 2 * self.num_channels if self.missing == "mask" and not self.is_tokens else self.num_channels

    @property
    def output_size(self) -> int:
        """Numbers a model must give, per sequence or per step: one per class, or one per target value."""
        return len(self.classes) if self.classes else int(np.prod(self.target_shape, dtype=int))

    def encode(self, data: SequenceSet, *, dtype: torch.dtype | None = None) -> SequenceBatch:
        """Check ``data`` against the training part and turn it into one padded batch, with targets where it has them.

        ``dtype`` is that of real values and real targets (torch's default if not given).
        """
        dtype = dtype or torch.get_default_dtype()
        require(len(data) > 0, "expected at least one sequence", "got none")
        if data.is_tokens != self.is_tokens:
            kinds = {True: "token ids, (time,) whole numbers", False: "(time, channel) numbers"}
            raise InputError(f"expected {kinds[self.is_tokens]}, as in training, got {kinds[data.is_tokens]}.")
        batch = self._encode_tokens(data, dtype) if self.is_tokens else self._encode_channels(data, dtype)
        if data.weights is not None:
            batch = replace(batch, weights=torch.as_tensor(data.weights, dtype=dtype))
        if data.targets is None:
            return batch
        steps = batch.values.shape[1]
        targets = self._encode_targets(replace(data, task=self.task), steps, dtype)
        return replace(batch, targets=targets, has_step_targets=self.has_step_targets)

    def unknown_classes(self, data: SequenceSet) -> tuple[list[str], Bool[np.ndarray, " n"]]:
        """Name the classes in ``data`` that training did not know, and mark the sequences that have one."""
        affected = np.zeros(len(data), dtype=bool)
        if not self.classes or data.targets is None:
            return [], affected
        names, rows = class_rows(replace(data, task=self.task))
        new = [index for index, name in enumerate(names) if name not in self.classes]
        for index, row in enumerate(rows):
            affected[index] = np.isin(row, new).any()
        return [names[index] for index in new], affected

    def not_numbers(self, data: SequenceSet) -> tuple[list[str], Bool[np.ndarray, " n"]]:
        """Show the targets in ``data`` that are no finite numbers where numbers are told, and mark their sequences."""
        affected = np.zeros(len(data), dtype=bool)
        if self.classes or data.targets is None:
            return [], affected
        strange: dict[str, None] = {}
        for index, row in enumerate(data.targets):
            cells = [str(cell) for cell in np.asarray(row).ravel() if not is_number(cell)]
            affected[index] = bool(cells)
            strange |= dict.fromkeys(cells)
        return list(strange), affected

    def decode_classes(self, indices: Any) -> np.ndarray:
        """Return the class names of ``indices``, any shape."""
        return np.asarray(self.classes, dtype=str)[_array(indices).astype(np.int64)]

    def decode_targets(self, values: Any) -> Float[np.ndarray, "..."]:
        """Bring encoded numbers back to the target's own unit and shape: ``(n, …)``, or ``(n, time, …)`` per step."""
        array = _array(values).astype(np.float64)
        leading = array.shape[: 2 if self.has_step_targets else 1]
        flat = array.reshape(*leading, self.output_size)
        decoded = flat * np.asarray(self.target_scale) + np.asarray(self.target_center)
        return decoded.reshape(*leading, *self.target_shape)

    def to_dict(self) -> dict[str, Any]:
        """Return plain Python that JSON and TOML can hold: no tuples, nothing absent."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Encoding":
        """Rebuild an encoding from `to_dict`'s output."""
        names = [field.name for field in fields(cls)]
        absent = [name for name in names if name not in values]
        require(not absent, "expected a stored encoding", f"got one without {shown(absent)}", "fit the run again")
        kept: dict[str, Any] = {name: _frozen(name, values[name]) for name in names}
        return cls(**kept)

    def _encode_tokens(self, data: SequenceSet, dtype: torch.dtype) -> SequenceBatch:
        ids = _token_ids(data.sequences)
        for index, sequence in enumerate(ids):
            if int(sequence.max()) >= self.vocabulary_size:
                raise InputError(
                    f"sequence {index}: expected token ids below {self.vocabulary_size}, the training vocabulary, "
                    f"got {int(sequence.max())}; map unknown tokens to a known id."
                )
        lengths = [len(sequence) for sequence in ids]
        spans = self._timespans(data)
        spans = None if spans is None else as_timespans(spans, lengths)
        return SequenceBatch(
            values=torch.from_numpy(_padded(ids, max(lengths), np.int64)),
            lengths=torch.tensor(lengths),
            timespans=None if spans is None else torch.from_numpy(_padded(spans, max(lengths))).to(dtype),
        )

    def _encode_channels(self, data: SequenceSet, dtype: torch.dtype) -> SequenceBatch:
        hint = "train with missing='mask' or missing='interpolate', or fill them in"
        arrays = as_sequences(data.sequences, allow_nan=self.missing != "refuse", nan_hint=hint)
        if data.channel_names and self.channel_names:
            arrays = arrange_channels(arrays, data.channel_names, self.channel_names, self.categorical)
        self._check_channels(arrays[0])
        arrays = scaled(arrays, self.center, self.scale, torch.finfo(dtype))
        spans = self._timespans(data)
        return SequenceBatch.from_sequences(arrays, timespans=spans, missing=self.missing, dtype=dtype)

    def _timespans(self, data: SequenceSet) -> Sequence[np.ndarray] | None:
        """Bring the time spans of ``data`` from its own unit of time to that of training, in units of its median."""
        ratio = data.time_unit / self.time_unit if data.time_unit and self.time_unit else 1.0
        spans = data.timespans
        if abs(ratio - 1) > SAME_UNIT:
            spans = spans or [np.ones(len(sequence)) for sequence in data.sequences]
            spans = [np.concatenate([span[:1], ratio * span[1:]]) for span in spans]
        return None if spans is None else [np.asarray(span) / self.median_span for span in spans]

    def _check_channels(self, first: np.ndarray) -> None:
        got = first.shape[1]
        if got != self.num_channels:
            turned = first.shape[0] == self.num_channels
            hint = "the axes look exchanged: pass layout='bct'" if turned else "bring the channels used in training"
            raise InputError(f"expected {self.num_channels} channels, as in training, got {got}; {hint}.")

    def _encode_targets(self, data: SequenceSet, steps: int, dtype: torch.dtype) -> Shaped[Tensor, "batch ..."]:
        if self.classes:
            names, rows = class_rows(data)
            position = {name: index for index, name in enumerate(self.classes)}
            unknown = [repr(name) for name in names if name not in position]
            if unknown:
                raise InputError(
                    f"expected the classes of training ({shown(self.classes)}), got {shown(unknown)}; "
                    "drop these sequences or train with them."
                )
            order = np.asarray([position[name] for name in names], dtype=np.int64)
            if isinstance(rows, np.ndarray):
                return torch.from_numpy(order[rows])
            return torch.from_numpy(_padded([order[row] for row in rows], steps, np.int64))
        rows = real_rows(data)
        shape = rows[0].shape[self.has_step_targets :]
        require(shape == self.target_shape, f"expected targets of shape {self.target_shape}", f"got {shape}")
        center, scale = np.asarray(self.target_center), np.asarray(self.target_scale)
        if self.has_step_targets:
            flat = [(row.reshape(len(row), -1) - center) / scale for row in rows]
            return torch.from_numpy(_padded(flat, steps)).to(dtype)
        encoded = (np.stack(rows).reshape(len(rows), -1) - center) / scale
        if self.task == "forecast":
            encoded = encoded.reshape(len(rows), shape[0] if len(shape) > 1 else 1, -1)
        return torch.from_numpy(encoded).to(dtype)


def check_learnable(train: SequenceSet) -> None:
    """Refuse, with one sentence, a training part from which nothing can be learned.

    >>> check_learnable(SequenceSet([np.zeros((3, 1))] * 4, targets=np.array(["a"] * 4)))
    Traceback (most recent call last):
    ...
    sostenuto.checks.InputError: expected at least two classes, got only class 'a'; check the column of labels.
    """
    require(train.targets is not None, "expected targets to learn from", "got none", "name the column that holds them")
    require(len(train) >= 2, "expected at least 2 training sequences", f"got {len(train)}", "bring more data")
    longest = max(len(sequence) for sequence in train.sequences)
    require(
        longest > 1,
        "expected sequences of more than one step, as a recurrent model needs time",
        f"got {longest} step in the longest",
        "check the file and its layout",
    )
    if not has_classes(train):
        real_rows(train)
        return
    names, _ = class_rows(train)
    require(
        len(names) > 1, "expected at least two classes", f"got only class {names[0]!r}", "check the column of labels"
    )
    if task_of(train) == "classification":
        require(
            2 * len(names) <= len(train),
            "expected at least two sequences a class on average",
            f"got {len(names)} classes in {len(train)} sequences",
            'is it a regression? then pass task="regression"',
        )


def _target_fields(train: SequenceSet, center: tuple[float, ...], scale: tuple[float, ...]) -> dict[str, Any]:
    fitted: dict[str, Any] = {"classes": (), "target_center": (), "target_scale": (), "target_shape": ()}
    if has_classes(train):
        return fitted | {"classes": sort_classes(class_rows(train)[0])}
    rows, task = real_rows(train), task_of(train)
    shape = rows[0].shape[task == "sequence" :]
    own = _forecast_channels(task, shape, train.channel_names, len(center), train.target_name)
    if own:
        units = {"target_center": tuple(center[i] for i in own), "target_scale": tuple(scale[i] for i in own)}
        return fitted | {"target_shape": shape} | {name: unit * shape[0] for name, unit in units.items()}
    flat = [row.reshape(len(row) if task == "sequence" else 1, -1) for row in rows]
    target_center, target_scale = channel_scale(flat, "standard")
    return fitted | {"target_shape": shape, "target_center": target_center, "target_scale": target_scale}


def _forecast_channels(
    task: Task, shape: tuple[int, ...], names: tuple[str, ...], num_channels: int, target_name: str
) -> tuple[int, ...]:
    if task != "forecast" or len(shape) != 2:
        return ()
    if shape[1] == num_channels:
        return tuple(range(num_channels))
    return (names.index(target_name),) if shape[1] == 1 and target_name in names else ()


def _token_ids(sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    checked = []
    for index, sequence in enumerate(sequences):
        array = np.asarray(sequence)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise InputError(
                f"sequence {index}: expected whole-number token ids, got {array.ndim}-D {array.dtype} data."
            )
        if len(array) == 0:
            raise InputError(f"sequence {index}: expected at least one token, got none; drop it.")
        if array.min() < 0:
            raise InputError(f"sequence {index}: expected token ids of at least 0, got {int(array.min())}.")
        checked.append(array.astype(np.int64, copy=False))
    return checked


def _padded(rows: Sequence[np.ndarray], steps: int, dtype: DTypeLike = np.float64) -> np.ndarray:
    padded = np.zeros((len(rows), steps, *rows[0].shape[1:]), dtype=dtype)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded


def _frozen(name: str, value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    # TOML writes 0.0 as a float but a hand may have written 0.
    numbers = name in ("center", "scale", "target_center", "target_scale")
    return tuple(float(item) if numbers else item for item in value)


def _array(values: Any) -> np.ndarray:
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
