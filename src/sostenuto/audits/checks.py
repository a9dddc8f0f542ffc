"""The checks of an audit: every `CHECK` at the end of a method file, found by itself."""

import functools
import importlib
import pkgutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sostenuto.audits
from sostenuto.audits.base import Check
from sostenuto.checks import InputError, check_choice, check_positive

FOLDERS = ("memory", "stability", "gradients", "robustness", "curvature", "generalization")


@functools.cache
def all_checks() -> dict[str, Check]:
    """Import every method file once, and list the checks by name, in the order of the page.

    >>> list(all_checks())[:2]
    ['skill', 'memory']
    """
    found: list[Check] = []
    for folder in FOLDERS:
        package = importlib.import_module(f"{sostenuto.audits.__name__}.{folder}")
        for module in pkgutil.iter_modules(package.__path__):
            check = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "CHECK", None)
            if isinstance(check, Check):
                found.append(check)
    return {check.name: check for check in sorted(found, key=lambda check: check.order)}


def all_thresholds(given: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, dict[str, float]]:
    """Give the thresholds of every check: the defaults, and over them what a user sets, by check and name.

    >>> all_thresholds({"noise": {"steady": 0.1}})["noise"]["steady"]
    0.1
    """
    known = {name: dict(check.thresholds) for name, check in all_checks().items() if check.thresholds}
    for name, own in (given or {}).items():
        check_choice("check of a threshold", name, known)
        if not isinstance(own, Mapping):
            raise InputError(f"expected a table [{name}] of thresholds, got {own!r}; write [{name}] and name = value.")
        for key, value in own.items():
            check_choice(f"threshold of {name}", key, known[name])
            check_positive(f"{name}.{key}", value, zero=True)
            known[name][key] = float(value)
    return known


def read_thresholds(path: Path) -> dict[str, Any]:
    """Read a TOML file of thresholds, a table per check."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: expected a TOML file of thresholds, got {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a TOML file of thresholds, got {error}.") from error
