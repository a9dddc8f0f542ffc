"""Write the reference: a page per public name, a table per namespace, and pages of modules that contributors read."""

import importlib
import inspect
from pathlib import Path

from sostenuto.results import Record

NAMESPACES = {
    "sostenuto": "Estimators and the audit",
    "sostenuto.nn": "Layers",
    "sostenuto.kernels": "Kernels",
    "sostenuto.audits": "Audits",
    "sostenuto.theory": "Theory",
    "sostenuto.datasets": "Data sets",
    "sostenuto.constraints": "Constraints on weights",
}
RETURNED = {"sostenuto.nn": ("sostenuto.nn.certificates.Certificate", "sostenuto.nn.certificates.MemoryCertificate")}
"""Records that methods return, to stand beside those that functions do."""
MODULES = (
    *("sostenuto.data.config", "sostenuto.data.files", "sostenuto.data.dataset", "sostenuto.data.batch"),
    *("sostenuto.models.prediction", "sostenuto.models.build", "sostenuto.models.baselines"),
    *("sostenuto.training.config", "sostenuto.training.recipes", "sostenuto.training.trainer"),
    *("sostenuto.ops", "sostenuto.ops.backend", "sostenuto.ops.oscillator", "sostenuto.ops.oscillator_bank"),
    *("sostenuto.ops.damped", "sostenuto.ops.dense", "sostenuto.ops.diagonal", "sostenuto.ops.recurrent_ntk"),
    *("sostenuto.ops.signature", "sostenuto.nn.base", "sostenuto.nn.certificates", "sostenuto.kernels.base"),
    *("sostenuto.kernels.nystroem", "sostenuto.audits.base", "sostenuto.theory.oscillator"),
    *("sostenuto.experiments.catalog", "sostenuto.benchmarks", "sostenuto.results", "sostenuto.checks"),
    "sostenuto.types",
)
AMBIGUOUS = ("list", "load", "audit")
"""Public names that mean something else where they stand alone in a docstring."""
FOREIGN = (
    "Module, BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, Kernel, ABC, object, tuple, "
    "_MetadataRequester, _SetOutputMixin"
)
"""Classes whose members other packages document."""


def short(name):
    """Write a public name as programs do, with ``so`` for ``sostenuto``."""
    return "so" + name.removeprefix("sostenuto")


def public_names():
    """Give, for each namespace, its public names and what they are, and the records that its functions return."""
    found = {}
    for namespace in NAMESPACES:
        module = importlib.import_module(namespace)
        names = [name for name in module.__all__ if not name.startswith("_")]
        objects = {f"{namespace}.{name}": getattr(module, name) for name in names}
        objects = {name: value for name, value in objects.items() if not inspect.ismodule(value)}
        found[namespace] = {**objects, **records(namespace, objects)}
    return found


def records(namespace, objects):
    """Find the records that functions return, where they have no public name of their own."""
    returned = dict.fromkeys(RETURNED.get(namespace, ()))
    for value in objects.values():
        kind = inspect.signature(value).return_annotation if inspect.isfunction(value) else None
        if inspect.isclass(kind) and issubclass(kind, Record) and kind not in objects.values():
            returned[f"{kind.__module__}.{kind.__qualname__}"] = None
    for name in returned:
        module, _, attribute = name.rpartition(".")
        returned[name] = getattr(importlib.import_module(module), attribute)
    return returned


def page(name, value):
    """Write the page of a public name."""
    title = short(name)
    lines = [title, "=" * len(title), ""]
    if inspect.isclass(value):
        lines += [
            f".. autoclass:: {name}",
            "   :members:",
            f"   :inherited-members: {FOREIGN}",
            "   :show-inheritance:",
        ]
    elif callable(value):
        lines += [f".. autofunction:: {name}"]
    else:
        lines += [f".. autodata:: {name}", "   :no-value:"]
    home = getattr(value, "__module__", "").replace(".", "/")
    return "\n".join([*lines, "", f"Defined in ``src/{home}.py``." if home and callable(value) else "", ""])


def table(namespace, objects):
    """Write the page of a namespace: its names with their purpose."""
    title = f"{short(namespace)}: {NAMESPACES[namespace].lower()}"
    lines = [title, "=" * len(title), "", ".. list-table::", "   :widths: 35 65", ""]
    for name, value in objects.items():
        purpose = purpose_of(value)
        lines += [f"   * - :py:obj:`{short(name)} <{name}>`", f"     - {purpose}"]
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {name}" for name in objects), ""]
    return "\n".join(lines)


def purpose_of(value):
    """Give the first line of a docstring."""
    text = inspect.getdoc(value) if callable(value) else ""
    return text.partition("\n")[0].replace("|", "\\|") if text else ""


def write_pages(folder):
    """Write all pages; give where each public name, and each home of one, is documented."""
    folder.mkdir(parents=True, exist_ok=True)
    places = {}
    for namespace, objects in public_names().items():
        (folder / f"{namespace}.rst").write_text(table(namespace, objects), encoding="utf-8")
        for name, value in objects.items():
            (folder / f"{name}.rst").write_text(page(name, value), encoding="utf-8")
            places[name] = name
            places.setdefault(f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}", name)
            if name.rpartition(".")[2] not in AMBIGUOUS:
                places.setdefault(name.rpartition(".")[2], name)
    for name in MODULES:
        lines = [name, "=" * len(name), "", f".. automodule:: {name}", "   :members:", "   :ignore-module-all:"]
        (folder / f"{name}.module.rst").write_text("\n".join([*lines, "   :show-inheritance:", ""]), encoding="utf-8")
    return places


if __name__ == "__main__":
    write_pages(Path(__file__).with_name("reference"))
