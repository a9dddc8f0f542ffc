"""Verdicts of an audit on small models whose truth is known: what no badge may say of each.

Every model is audited with several seeds, and its curvature and stability with the full budget too. A verdict is false
where its label is one of those that the model's making rules out; of models without skill every praise is false. Seeds
and budgets that decide differently are counted too.
"""

from typing import Any

import torch
from tqdm import tqdm

from sostenuto.audits.audit import AuditReport, audit
from sostenuto.benchmarks._known_forms import FORMS
from sostenuto.benchmarks._known_models import KNOWN as MODELS
from sostenuto.benchmarks._known_models import Known
from sostenuto.benchmarks._known_traps import TRAPS

TITLE = "verdicts of the quick audit on models of known truth, over three seeds"

KNOWN = {**MODELS, **TRAPS, **FORMS}
UNDECIDED = "Undecided"
DEEPER = ("lyapunov", "curvature")
"""Checks whose full budget must not contradict the quick one."""
FULL_SECONDS = 480


def run(progress: bool = True, seeds: int = 3) -> dict[str, Any]:
    """Return the verdicts of every model and seed, those that are false, and those that seeds disagree about."""
    return counted(
        {name: judge(name, seeds) for name in tqdm(KNOWN, desc="audit verdicts", disable=not progress)}, seeds
    )


def counted(rows: dict[str, dict[str, Any]], seeds: int) -> dict[str, Any]:
    """Count what was told of all models, what was false, and what seeds and budgets disagree about."""
    told = [label for row in rows.values() for labels in row["labels"].values() for label in labels]
    return {
        "models": len(rows),
        "seeds": seeds,
        "verdicts": len(told),
        "decided": sum(label != UNDECIDED for label in told),
        "false": sum(len(row["false"]) for row in rows.values()),
        "seeds_disagree": sum(len(row["disagree"]) for row in rows.values()),
        "budgets_disagree": sum(len(row["budgets_disagree"]) for row in rows.values()),
        "by_model": rows,
    }


def judge(name: str, seeds: int) -> dict[str, Any]:
    """Audit one model with every seed, and count what is false."""
    case = KNOWN[name]
    labels: dict[str, list[str]] = {}
    wrong: list[str] = []
    for seed in range(seeds):
        report = _audited(case, seed)
        for check, verdict in report.verdicts.items():
            labels.setdefault(check, []).append(verdict.label)
        wrong += falsehoods(case, report)
    disagree = [check for check, told in labels.items() if len(set(told) - {UNDECIDED}) > 1]
    # A verdict that the quick budget gives must be the full one's too.
    deeper = [check for check in DEEPER if set(labels.get(check, ())) - {UNDECIDED}]
    pairs: list[tuple[str, str]] = []
    if deeper:
        full = _audited(case, 0, checks=deeper, budget="full", max_seconds=FULL_SECONDS)
        pairs = [(check, full.verdicts[check].label) for check in deeper if check in full.verdicts]
        wrong += [falsehood for falsehood in falsehoods(case, full) if not falsehood.startswith("skill")]
    budgets = [check for check, label in pairs if len({label, *labels[check]} - {UNDECIDED}) > 1]
    return {"labels": labels, "false": wrong, "disagree": disagree, "budgets_disagree": budgets, "full": dict(pairs)}


def falsehoods(case: Known, report: AuditReport) -> list[str]:
    """List what a report says that the making of its model rules out."""
    said = [
        f"{check}: {verdict.label}"
        for check, verdict in report.verdicts.items()
        if verdict.label in case.never.get(check, ()) or verdict.outcome in case.never.get("any", ())
    ]
    memory = report.memory
    if memory is not None:
        if case.laws and not memory.hidden and memory.kind not in (*case.laws, "no law"):
            said.append(f"law: {memory.kind}")
        if case.ahead is not None and memory.looks_ahead not in (case.ahead, None):
            said.append(f"looks ahead: {memory.looks_ahead}")
    return said


def _audited(case: Known, seed: int, **options: Any) -> AuditReport:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model, x, y = case.make()
        train = (x, y) if case.train else None
        return audit(model, x, y, train=train, seed=seed, progress=False, **case.given, **options)
