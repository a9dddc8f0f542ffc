"""Where sequences come from and how they are read, as data; and how settings say what they are for."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sostenuto.checks import check_choice, check_count, check_fraction
from sostenuto.choices import Decimal, Layout, Missing, NamedTask, Scaling, Separator, Spacing, Split


def setting(default: Any, help: str) -> Any:
    """Make a setting that the command line offers as an option of the same name, with ``help`` as its text."""
    return field(default=default, metadata={"help": help})


def check_choices(settings: Any) -> None:
    """Refuse any text of a record of settings that its type does not list."""
    for name, hint in get_type_hints(type(settings)).items():
        if get_origin(hint) is Literal:
            check_choice(name, getattr(settings, name), get_args(hint))


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Options of the file readers: axes of an array, columns of a table ("": the default name of the format), marks."""

    layout: Layout = setting("btc", "Axis order of a 3-D array: (batch, time, channel) or (batch, channel, time).")
    target: str = setting("", "Target column of a table.")
    series: str = setting("", "Column with the series ID in a long table.")
    time: str = setting("", "Time column of a long table.")
    group: str = setting("", "Column of groups that a group split keeps together.")
    ignore: tuple[str, ...] = setting((), "A column of a table to skip.")
    categorical: tuple[str, ...] = setting((), "A text column, one-hot encoded into one channel per value.")
    separator: Separator = setting("comma", "What stands between the cells of a .csv file.")
    decimal: Decimal = setting("point", "Decimal mark of a .csv file.")

    def __post_init__(self) -> None:
        check_choices(self)


@dataclass(frozen=True, kw_only=True)
class DataConfig(FileOptions):
    """Where the sequences come from and how they are read, split and scaled.

    ``source`` is a data-set name or a file, ``test`` a second file. ``validation`` is the fraction of the training part
    held out (0: none), ``test_fraction`` what becomes the test part where none is given; ``split`` how both are drawn.
    With ``task = "forecast"`` a file's series are cut into windows of ``window`` steps with the next ``horizon`` as
    target, divided in time. ``task = "sequence"`` has a target at every step: text, booleans and whole numbers of at
    most 20 different values are classes, other numbers a regression; ``"step-classification"`` and
    ``"step-regression"`` say which. In a table ``ignore`` names columns to leave out, ``categorical`` columns of text
    that become one channel per value; uneven times become time spans unless ``timespans = "ignore"`` takes
    the steps as evenly spaced. ``most_unpacked`` is the limit of a packed file in bytes, 0 that of
    ``SOSTENUTO_MOST_UNPACKED`` or 8 GiB. ``checksum`` is filled in by the run, so that other data are refused later.
    """

    source: str = "digits"
    test: str = setting("", "A file with the test sequences.")
    task: NamedTask = setting(
        "",
        "Task, where the file does not define it. sequence has a target at every step: names and few distinct integers "
        "are classes, unless step-classification or step-regression says which.",
    )
    timespans: Spacing = setting("use", "Use uneven sampling times as time spans, or only to sort the steps.")
    missing: Missing = setting("refuse", "How NaN is handled.")
    scaling: Scaling = setting("standard", "Scaling of the channels.")
    validation: float = setting(0.15, "Fraction of the training part held out for validation.")
    test_fraction: float = 0.2
    split: Split = setting("stratified", "How the parts are split.")
    window: int = setting(32, "Length of a forecasting window in steps.")
    horizon: int = setting(1, "Steps ahead to forecast.")
    most_unpacked: int = setting(0, "Largest size of a file after decompression, in bytes (0: 8 GiB).")
    checksum: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "horizon"):
            check_count(name, getattr(self, name))
        check_count("most_unpacked", self.most_unpacked, least=0)
        for name in ("validation", "test_fraction"):
            check_fraction(name, getattr(self, name))


def option_help(section: type) -> dict[str, tuple[Any, str]]:
    """Return the type and the text of each setting that is an option, with its choices.

    >>> option_help(DataConfig)["missing"]
    (<class 'str'>, 'How NaN is handled: refuse, mask or interpolate.')
    """
    hints, options = get_type_hints(section), {}
    for each in fields(section):
        if "help" in each.metadata:
            hint, text = hints[each.name], each.metadata["help"]
            if get_origin(hint) is Literal:
                *some, last = (choice for choice in get_args(hint) if choice)
                hint, text = str, f"{text.removesuffix('.')}: {', '.join(some)} or {last}."
            options[each.name] = (hint, text)
    return options
