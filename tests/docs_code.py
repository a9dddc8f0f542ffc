"""Scripts that are no package, as modules: those that build the documentation, and those of a release."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def docs_module(name: str, folder: str = "docs") -> ModuleType:
    """Import ``docs/NAME.py``, or that of another folder."""
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", ROOT / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
