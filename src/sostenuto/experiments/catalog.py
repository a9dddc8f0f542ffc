"""Find the experiments, and read what each of them is."""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import sostenuto.experiments as experiments
from sostenuto.checks import FileFormatError, InputError, check_choice, require, sentence, shown
from sostenuto.experiments.expectation import Expectation
from sostenuto.experiments.settings import Settings

ROOT = Path(__file__).parent
FILES = ("item.toml", "run.py")
PROTOCOLS = ("paper", "reduced", "ours", "quick")
"""The paper's own; the same with fewer runs, epochs or points; our best recipe; a minute on two cores."""
KEYS = ("title", "what", "needs_data", "needs_device", "time", "about", "expected")
_PAPER = re.compile(r"[a-z]+\d{4}")
"""A paper's key, as docs/bibliography.md lists them: its first author and its year."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper: what its folder says.

    ``needs_data`` names data sets (or whole archives, such as ``"ucr"``). ``comparable`` names the protocols whose
    numbers may stand beside the paper's and whose laws are judged. ``protocols`` holds the settings of the first
    protocol, the paper's where it has one, and what the others change. ``about`` is what was found, in Markdown.
    """

    name: str
    folder: Path
    title: str
    paper: str
    what: str
    needs_data: tuple[str, ...]
    needs_device: str
    time: str
    about: str
    comparable: tuple[str, ...]
    protocols: Mapping[str, Mapping[str, Any]]
    expected: Mapping[str, Expectation]

    @classmethod
    def read(cls, folder: Path) -> "Experiment":
        """Read a folder's ``item.toml``."""
        path = folder / "item.toml"
        config = _toml(path)
        # The settings of an item that shares its cells with this one.
        if "settings_of" in config:
            other = _toml(folder.parents[1] / config.pop("settings_of").replace("-", "_") / "item.toml")
            config |= {protocol: other[protocol] for protocol in PROTOCOLS if protocol in other}
        config |= {protocol: _flat(config[protocol]) for protocol in PROTOCOLS if protocol in config}
        base = next((name for name in ("paper", "ours") if name in config), "paper")
        absent = [key for key in (*KEYS, base, "quick") if key not in config]
        unknown = [key for key in config if key not in (*KEYS, *PROTOCOLS, "comparable")]
        if absent or unknown:
            raise FileFormatError(
                path, f"expected the keys {', '.join((*KEYS, base, 'quick'))}", _wrong(absent, unknown)
            )
        for protocol in PROTOCOLS:
            new = [key for key in config.get(protocol, {}) if key not in config[base]]
            if new:
                raise FileFormatError(
                    path, f"expected [{protocol}] to change settings of [{base}]", f"got {shown(new)}"
                )
        check_choice("needs_device", config["needs_device"], ("cpu", "gpu"))
        return cls(
            name=_name(folder),
            paper=folder.parent.name,
            folder=folder,
            needs_data=tuple(config["needs_data"]),
            comparable=tuple(config.get("comparable", ("paper", "reduced", "ours"))),
            protocols={name: config[name] for name in PROTOCOLS if name in config},
            expected={name: Expectation.of(name, entry) for name, entry in config["expected"].items()},
            **{key: str(config[key]) for key in ("title", "what", "needs_device", "time", "about")},
        )

    def settings(self, protocol: str, changes: Mapping[str, Any] | None = None) -> Settings:
        """Return the settings of the first protocol, with what this one and then the caller changes."""
        check_choice(f"the protocol of {self.name}", protocol, self.protocols)
        return Settings(self.protocols[self.first]).changed(self.protocols[protocol]).changed(changes or {})

    @property
    def first(self) -> str:
        """Name the protocol that the others change: the paper's, or ours where the paper has none."""
        return next(iter(self.protocols))

    def recipe(self, protocol: str, settings: Mapping[str, Any]) -> str:
        """Say in words how settings differ from the first protocol's.

        >>> item = find("wang2024/figure-2")
        >>> item.recipe("reduced", item.settings("reduced"))
        'reduced protocol: epochs 60 instead of 1000'
        """
        known = self.protocols[self.first]
        changed = [_changed(name, known[name], settings[name]) for name in known if settings[name] != known[name]]
        more = f" and {len(changed) - 6} other settings" if len(changed) > 6 else ""
        said = f": {', '.join(changed[:6])}{more}" if changed else ""
        return f"{protocol} protocol{said}"

    def load(self) -> Callable[..., None]:
        """Import the folder's ``run.py`` and return its ``run``; folders elsewhere join the package's path."""
        root = str(self.folder.parents[1])
        if root not in experiments.__path__:
            experiments.__path__.append(root)
        return import_module(f"{experiments.__name__}.{self.folder.parent.name}.{self.folder.name}.run").run


def names(root: Path = ROOT) -> list[str]:
    """List the experiments, sorted by paper, tables before figures, then by number.

    >>> "wang2024/figure-1" in names()
    True
    """
    papers = [folder for folder in sorted(root.iterdir()) if folder.is_dir() and _PAPER.fullmatch(folder.name)]
    items = [item for paper in papers for item in paper.iterdir() if (item / "item.toml").is_file()]
    return [_name(item) for item in sorted(items, key=_order)]


def find(name: str, root: Path = ROOT) -> Experiment:
    """Read the experiment ``name``; an unknown name is refused with the closest ones.

    >>> find("wang2024/figure-1").paper
    'wang2024'
    """
    known = names(root)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
        close = close or [experiment for experiment in known if experiment.startswith(name.split("/")[0])][:4]
        meant = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        hint = f"{meant}sostenuto reproduce --list shows what there is"
        raise InputError(sentence("expected the name of an experiment", f"got {name!r}", hint))
    return Experiment.read(root / name.replace("-", "_"))


def _name(folder: Path) -> str:
    """Write a folder's name as the command line has it: ``rusch2021/table_1`` is ``rusch2021/table-1``."""
    return f"{folder.parent.name}/{folder.name.replace('_', '-')}"


def _order(folder: Path) -> tuple[str, bool, list[tuple[int, str]]]:
    parts = re.findall(r"\d+|\D+", folder.name)
    numbered = [(int(part), "") if part.isdigit() else (0, part) for part in parts]
    return folder.parent.name, not folder.name.startswith("table"), numbered


def _toml(path: Path) -> dict[str, Any]:
    require(path.is_file(), f"expected the file {path}", "found none", "an experiment has " + ", ".join(FILES))
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(path, "expected TOML", f"got something else ({error})") from error


def _flat(table: Mapping[str, Any], lead: str = "") -> dict[str, Any]:
    """Name the values of nested tables by their path.

    >>> _flat({"seeds": 3, "lstm": {"layer": "lstm", "try": {"dropout": [0.0, 0.1]}}})
    {'seeds': 3, 'lstm.layer': 'lstm', 'lstm.try.dropout': [0.0, 0.1]}
    """
    flat = dict[str, Any]()
    for name, value in table.items():
        flat |= _flat(value, f"{lead}{name}.") if isinstance(value, dict) else {f"{lead}{name}": value}
    return flat


def _changed(name: str, old: Any, new: Any) -> str:
    if isinstance(old, list) and isinstance(new, list) and max(len(old), len(new)) > 1:
        return f"{len(new)} of {name} instead of {len(old)}" if len(new) != len(old) else f"{name} {shown(new)}"
    return f"{name} {new} instead of {old}"


def _wrong(absent: list[str], unknown: list[str]) -> str:
    said = [f"missed {shown(absent)}"] if absent else []
    return " and ".join([*said, *([f"got {shown(unknown)}"] if unknown else [])])
