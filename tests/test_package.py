"""What a user meets first: a cheap import, public names that resolve, and a core that needs no extra."""

import importlib
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import sostenuto
from tests.apart import run_apart

PACKAGE = Path(sostenuto.__file__).parent
EXTRAS = ("cvxpy", "dask", "distributed", "optuna", "pyarrow", "pysiglib", "zarr")
TESTS_ALONE = ("beartype", "foolbox", "torchrecurrent")
HEAVY = ("accelerate", "jinja2", "matplotlib", "numba", "optuna", "pyarrow", "sklearn", "triton", "typer")

# Hides packages as if they were not installed: an import fails and `find_spec` gives None, for every finder.
HIDE = """
import sys

class Hiding:
    def __init__(self, finder, names):
        self.finder, self.names = finder, names

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in self.names else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

def hide(names):
    sys.meta_path[:] = [Hiding(finder, frozenset(names)) for finder in sys.meta_path]
    for loaded in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[loaded]
"""


def run_python(program: str) -> str:
    """Run a program in a fresh interpreter and give back what it printed."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def module_names() -> list[str]:
    """Name every module of the package except the GPU kernels, which need triton."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] not in ("gpu", "__main__"):
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def test_import_is_light() -> None:
    program = f"import sys, sostenuto; print([name for name in {HEAVY} if name in sys.modules])"
    assert run_python(program) == "[]"


@pytest.mark.parametrize("name", sostenuto.__all__)
def test_public_name_resolves(name: str) -> None:
    assert getattr(sostenuto, name) is not None
    assert name in dir(sostenuto)


def test_an_unknown_name_is_refused_with_the_public_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'networks'; public names are: .*nn"):
        _ = sostenuto.networks


def test_hiding_a_package_hides_it() -> None:
    program = f"{HIDE}\nimport importlib.util\nhide(['json'])\nsys.modules.pop('json', None)\n"
    assert run_python(program + "print(importlib.util.find_spec('json'))") == "None"
    assert run_python(program + "try:\n    import json\nexcept ModuleNotFoundError:\n    print('gone')") == "gone"


@pytest.mark.parametrize("hidden", [*((extra,) for extra in EXTRAS), EXTRAS], ids=lambda names: "+".join(names))
def test_every_module_imports_without_the_extra(hidden: tuple[str, ...]) -> None:
    program = (
        f"{HIDE}\nimport importlib\nassert 'sostenuto' not in sys.modules\nhide({hidden})\n"
        f"for name in {module_names()}:\n    importlib.import_module(name)\n"
    )
    run_apart(program + f"assert not set({hidden}) & set(sys.modules)")


def test_the_tests_are_collected_without_any_extra() -> None:
    """What a test imports beside the base install is imported in the test, which then skips."""
    hidden = (*EXTRAS, *TESTS_ALONE)
    root = Path(__file__).parents[1]
    mention = re.compile(r"\b(?:import|importorskip\(\"|from) ?(" + "|".join(hidden) + r")\b")
    files = [str(path) for path in sorted(root.glob("tests/**/*.py")) if mention.search(path.read_text("utf-8"))]
    program = f"{HIDE}\nhide({hidden})\nimport pytest\nsys.exit(pytest.main(sys.argv[1:]))"
    options = ("--collect-only", "-p", "no:cacheprovider", "-p", "no:xdist")
    command = [sys.executable, "-c", program, *options, *files]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert len(files) >= 8
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "types: not checked, beartype is not installed" in done.stdout


def test_type_checks_leave_gpu_kernels_as_written() -> None:
    """Triton compiles the source of a function: a decorator around it would be compiled in its place."""
    pytest.importorskip("triton", reason="Triton has no wheel for this system")
    pytest.importorskip("beartype")
    kernels, op = importlib.import_module("sostenuto.ops._gpu.tanh"), importlib.import_module("sostenuto.ops.backend")
    assert type(kernels.__spec__.loader) is SourceFileLoader
    assert type(op.__spec__.loader) is not SourceFileLoader


@pytest.mark.parametrize("package", ["nn", "kernels", "audits", "theory", "datasets", "constraints", "estimators"])
def test_public_names_of_the_packages_resolve(package: str) -> None:
    module = importlib.import_module(f"sostenuto.{package}")
    assert [name for name in module.__all__ if getattr(module, name, None) is None] == []
