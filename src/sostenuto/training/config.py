"""What a run is made of, as data: TOML in, TOML out, every key known and checked."""

import difflib
import tomllib
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sostenuto.checks import (
    FileFormatError,
    InputError,
    check_choice,
    check_count,
    check_fraction,
    check_positive,
    shown,
)
from sostenuto.choices import ClassWeights, Decayed, NormMethod, Optimizer, Precision, Readout, Schedule, Selection
from sostenuto.data.config import DataConfig, check_choices, setting

_KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
}
_LISTS: dict[Any, tuple[type, str]] = {tuple[int, ...]: (int, "whole numbers"), tuple[str, ...]: (str, "texts")}


@dataclass(frozen=True)
class ModelConfig:
    """The layer by name, the read-out and the dropout on what it sees, and the layer's own options."""

    layer: str = "stack"
    readout: Readout = setting("last", "Pooling of the states over time.")
    readout_dropout: float = 0.0
    embedding_size: int = 100
    embedding_dropout: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choices(self)
        check_count("embedding_size", self.embedding_size)
        check_fraction("embedding_dropout", self.embedding_dropout)
        check_fraction("readout_dropout", self.readout_dropout)
        own = [f.name for f in fields(self)]
        misplaced = [name for name in self.options if name in own]
        if misplaced:
            got = f"got {shown(misplaced)}; set them in the section [model] itself."
            raise InputError(f"expected options of the layer alone, {got}")


@dataclass(frozen=True)
class TrainingConfig:
    """How the weights are fitted.

    Args:
        epochs: passes over the training part.
        batch_size: sequences in one step, over all processes together.
        optimizer: ``"adamw"``, ``"adam"``, ``"sgd"`` (with ``momentum``) or ``"muon"`` (orthogonal steps for matrices
            inside the layer, AdamW for all else).
        learning_rate: the peak.
        matrix_rate: learning rate of Muon's matrices, as a multiple of that of the other weights.
        weight_decay: as the optimizer defines it.
        decayed: ``"all"`` weights, or ``"matrices"`` alone.
        embedding_rate: learning rate of word vectors, as a share of that of the other weights; 0 keeps them as given.
        even_words: give the word vectors one second moment together (`EvenAdam`), so that rare words move less.
        momentum: of SGD.
        schedule: ``"constant"``, ``"step"`` (times ``step_factor`` at each of ``step_epochs``), ``"cosine"`` to 0, or
            ``"one-cycle"`` (up over the first 30 %, then down to a ten-thousandth, both as cosines).
        step_epochs: where the step schedule steps.
        step_factor: by how much.
        gradient_clip: largest norm of the gradient; 0 leaves it alone.
        patience: stop after so many epochs without a better validation score; 0 never stops early.
        select: ``"best"`` keeps the weights of the best validation score, ``"last"`` the final ones.
        ema_decay: decay of the moving average of the weights that is then evaluated and kept; 0 for none.
        class_weights: ``"none"`` or ``"balanced"`` (rare classes count as much as common ones).
        label_smoothing: of the cross-entropy.
        input_noise: standard deviation of Gaussian noise added to the (scaled) inputs of each training batch.
        gradient_window: steps that back-propagation through time reaches back at most; 0 for all. Windows are counted
            from the end of the longest sequence of a bucket.
        subsample: time points drawn at random, in order, from each longer training sequence; 0 for all.
        buckets: lengths at which sequences are sorted into batches of similar length.
        drop_last: train on whole batches alone; what is left of an epoch waits for another.
        precision: ``"float32"``, ``"tf32"`` (on CUDA products of matrices round to TensorFloat-32) or ``"bf16"``
            (mixed).
        graph: on CUDA, record the whole step once and replay it; layers that ask the device cannot (ExpRNN, cuDNN's).
        evaluate_every: epochs between two scores on the validation part.
        evaluation_batch: sequences scored at once.
        checkpoint_seconds: write a checkpoint inside an epoch when the last one is older. An epoch ends with one too,
            unless the last is younger than this or a second; the last epoch always does.
        seed: of weights, shuffling, dropout and splits.
        rkhs_penalty: λ of the penalty λ‖ξ‖² on the norm in the signature's RKHS (fermanian2021, section 3.2), for
            residual layers; 0 for none.
        rkhs_order: levels N of that norm.
        rkhs_method: ``"exact"``, or ``"stochastic"`` with ``rkhs_draws`` draws at every step.
        rkhs_draws: draws of the stochastic method.
        rkhs_total_variation: L of fermanian2021, below 1.
    """

    epochs: int = setting(60, "Training epochs.")
    batch_size: int = setting(32, "Batch size, in sequences.")
    optimizer: Optimizer = "adamw"
    learning_rate: float = setting(0.01, "Peak learning rate.")
    matrix_rate: float = 1.0
    weight_decay: float = 0.0
    decayed: Decayed = "all"
    embedding_rate: float = 1.0
    even_words: bool = False
    momentum: float = 0.9
    schedule: Schedule = "one-cycle"
    step_epochs: tuple[int, ...] = ()
    step_factor: float = 0.1
    gradient_clip: float = 1.0
    patience: int = setting(0, "Stop after this many epochs without a better validation score; 0: never.")
    select: Selection = "best"
    ema_decay: float = 0.0
    class_weights: ClassWeights = "none"
    label_smoothing: float = 0.0
    input_noise: float = 0.0
    gradient_window: int = 0
    subsample: int = 0
    buckets: tuple[int, ...] = ()
    drop_last: bool = False
    precision: Precision = setting("float32", "Precision of the training.")
    graph: bool = False
    evaluate_every: int = 1
    evaluation_batch: int = 512
    checkpoint_seconds: float = 300.0
    seed: int = setting(0, "Seed of weights, shuffling, dropout and splits.")
    rkhs_penalty: float = 0.0
    rkhs_order: int = 3
    rkhs_method: NormMethod = "exact"
    rkhs_draws: int = 64
    rkhs_total_variation: float = 0.5

    def __post_init__(self) -> None:
        check_choices(self)
        for name in ("epochs", "batch_size", "evaluate_every", "evaluation_batch", "rkhs_order"):
            check_count(name, getattr(self, name))
        for name in ("patience", "gradient_window", "subsample", "seed"):
            check_count(name, getattr(self, name), least=0)
        if self.seed >= 2**63:
            raise InputError(f"expected seed to be below 2**63, which is what generators take, got {self.seed}.")
        for name in ("step_epochs", "buckets"):
            for count in getattr(self, name):
                check_count(name, count)
        if self.even_words and self.optimizer != "adamw":
            raise InputError(f"expected adamw with even_words, got {self.optimizer!r}.")
        check_count("rkhs_draws", self.rkhs_draws, least=2)
        check_positive("learning_rate", self.learning_rate)
        check_positive("matrix_rate", self.matrix_rate)
        for name in (
            "weight_decay",
            "embedding_rate",
            "gradient_clip",
            "input_noise",
            "checkpoint_seconds",
            "step_factor",
            "rkhs_penalty",
        ):
            check_positive(name, getattr(self, name), zero=True)
        for name in ("ema_decay", "label_smoothing", "momentum", "rkhs_total_variation"):
            check_fraction(name, getattr(self, name))


@dataclass(frozen=True)
class RunConfig:
    """The whole of a run's settings, as ``config.toml`` holds them.

    >>> config = RunConfig(training=TrainingConfig(epochs=3))
    >>> RunConfig.from_toml(config.to_toml()) == config
    True
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def to_dict(self) -> dict[str, Any]:
        """Return nested dicts of plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunConfig":
        """Read nested dicts; an unknown key or a value of the wrong kind is refused by name."""
        return _read(cls, values, "")

    def to_toml(self) -> str:
        """Write TOML."""
        return dump_toml(self.to_dict())

    @classmethod
    def from_toml(cls, text: str) -> "RunConfig":
        """Read TOML."""
        return cls.from_dict(tomllib.loads(text))

    @classmethod
    def load(cls, path: str | Path) -> "RunConfig":
        """Read a ``config.toml``; a damaged one is refused with its name."""
        try:
            return cls.from_toml(Path(path).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FileFormatError(path, "expected TOML", f"got {error}") from error
        except OSError as error:
            raise FileFormatError(path, "expected a readable config file", f"got {error.strerror}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


Section = TypeVar("Section", DataConfig, ModelConfig, TrainingConfig)


def overlaid(section: Section, values: dict[str, Any]) -> Section:
    """Put ``values`` over a section, each checked as if it stood in a config file.

    >>> overlaid(TrainingConfig(), {"epochs": 5}).epochs
    5
    """
    name = type(section).__name__.removesuffix("Config").lower()
    return _read(type(section), {**asdict(section), **values}, name)


def dump_toml(values: dict[str, Any]) -> str:
    r"""Write nested dicts of strings, numbers, booleans and flat lists as TOML.

    >>> print(dump_toml({"a": 1, "t": {"b": [0.5, 2.0], "s": 'say "x"'}}), end="")
    a = 1
    <BLANKLINE>
    [t]
    b = [0.5, 2.0]
    s = "say \"x\""
    """
    lines: list[str] = []
    _write_table(values, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(table: dict[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    if path:
        lines.extend(["", f"[{'.'.join(_key(part) for part in path)}]"])
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines.extend(f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in tables)
    for key, value in tables.items():
        _write_table(value, (*path, key), lines)


def _key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(_character(c, value) for c in value) + '"'
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        # NumPy's float64 is a float whose own repr is no TOML.
        return float.__repr__(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise InputError(f"expected a string, number, boolean or list in a config, got {type(value).__name__}.")


def _character(c: str, text: str) -> str:
    if c in ('"', "\\"):
        return "\\" + c
    if c.isprintable():
        return c
    if "\ud800" <= c <= "\udfff":
        raise InputError(f"expected text that UTF-8 can hold, got {text!r}; rename the file.")
    return f"\\u{ord(c):04x}" if ord(c) <= 0xFFFF else f"\\U{ord(c):08x}"


def _meant(key: str) -> str:
    """Name the section that has this key, or one with a key that is written alike."""
    sections = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig}
    places = {option.name: section for section, cls in sections.items() for option in fields(cls)}
    close = difflib.get_close_matches(key, places, n=1, cutoff=0.75)
    return f"; [{places[close[0]]}] has {close[0]}" if close else ""


def _read(cls: type, values: dict[str, Any], where: str) -> Any:
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]
    unknown = [key for key in values if key not in known]
    if unknown:
        raise InputError(
            f"expected keys of {where or 'a run'} among {', '.join(known)}, got {shown(unknown)}{_meant(unknown[0])}."
        )
    return cls(**{key: _coerced(hints[key], value, f"{where}.{key}".lstrip(".")) for key, value in values.items()})


def _coerced(hint: Any, value: Any, name: str) -> Any:
    if is_dataclass(hint) and isinstance(value, dict):
        return _read(hint, value, name)  # pyright: ignore[reportArgumentType]
    if hint is float and _is_kind(value, int):
        return float(value)
    if hint in _LISTS:
        kind, words = _LISTS[hint]
        if isinstance(value, (list, tuple)) and all(_is_kind(item, kind) for item in value):
            return tuple(value)
        raise InputError(f"expected {name} to be a list of {words}, got {value!r}.")
    if get_origin(hint) is Literal:
        check_choice(name.rpartition(".")[2], value, get_args(hint))
    kind: Any = hint if hint in _KINDS else str if get_origin(hint) is Literal else dict
    if not _is_kind(value, kind):
        raise InputError(f"expected {name} to be {_KINDS[kind]}, got {value!r}.")
    return value


def _is_kind(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
