"""All checks at once: what a model remembers, whether it is stable, whether it can be fooled."""

import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from sostenuto.audits.base import UNDECIDED, AuditResult, Check, Judged
from sostenuto.audits.batches import EvalBatch, eval_batch, is_real, named_part
from sostenuto.audits.checks import all_checks, all_thresholds
from sostenuto.audits.conduct import misconduct
from sostenuto.audits.context import BUDGETS, AuditContext, Cost, measured_cost
from sostenuto.audits.model import audited, place_of
from sostenuto.audits.recognize import BlackBox, recognize
from sostenuto.checks import InputError, check_choice, check_count, check_positive, require
from sostenuto.report.numbers import duration
from sostenuto.results import Outcome, Record
from sostenuto.training.processes import environment

SKILL = "skill"
"""The check that decides whether the others have anything to say."""
GROWTH = 0.7
"""Changes of the state that grow by more than e to this over a sequence, to twice, hide what is remembered."""
UNFOLLOWED = (
    "a part of the input counts for more the older it is, which may be memory, or growth of any small change, and no "
    "state was followed that could tell"
)
NO_SKILL = "Undecided: the model is not shown to be better than guessing."


@dataclass(frozen=True)
class CheckVerdict(Record):
    """What a check's numbers mean: an outcome, its label, the sentences behind it, and the thresholds used."""

    outcome: Outcome
    label: str
    text: str
    number: float | None = None
    thresholds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AuditReport(Record):
    """What every check found, by its name; ``refused`` says of the others in a sentence why they did not answer.

    ``results`` and ``verdicts`` have the same keys, in the order of the page; ``report.memory`` is short for
    ``report.results.get("memory")``. ``task`` is ``"classification"``, ``"regression"`` or, without targets, empty;
    ``data`` names the data where that is known, ``checksum`` changes with them, ``weights`` is the SHA-256 of the
    model's parameters and buffers, ``date`` when the audit ended (UTC), and ``notes`` say how the model was read.
    ``num_sequences`` were asked about; costly checks took fewer of them.
    """

    model: str
    num_parameters: int
    num_sequences: int
    num_steps: int
    budget: str
    seed: int
    seconds: float
    task: str = ""
    data: str = ""
    checksum: str = ""
    weights: str = ""
    date: str = ""
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    results: dict[str, AuditResult] = field(default_factory=dict)
    verdicts: dict[str, CheckVerdict] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        """Give a check's result by its name, None where it did not answer."""
        if not name.startswith("_") and name in all_checks():
            return self.results.get(name)
        raise AttributeError(f"an audit's report has no {name!r}; its results are {', '.join(self.results) or 'none'}")

    def summary(self) -> str:
        """Say what every check found, one line each."""
        lines = [f"{name}: {result.summary()}" for name, result in self.results.items()]
        for name, reason in self.refused.items():
            lines.append(
                f"{name}: {reason}" if reason.startswith("not applicable") else f"{name}: not measured: {reason}"
            )
        return "\n".join(lines)

    def save(self, path: str | Path) -> Path:
        """Write the page to ``path``, whole or not at all, and return the path."""
        from sostenuto.audits.page import save

        return save(self, path)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AuditReport":
        """Rebuild a report from `to_dict`'s output."""
        known = all_checks()
        own = {name: known[name].result.from_dict(result) for name, result in values.get("results", {}).items()}
        judged = {name: CheckVerdict.from_dict(verdict) for name, verdict in values.get("verdicts", {}).items()}
        return super().from_dict({**values, "results": own, "verdicts": judged})  # pyright: ignore[reportReturnType]


def audit(
    model: nn.Module | Any,
    X: Any,  # noqa: N803
    y: Any = None,
    *,
    train: Any = None,
    checks: str | Sequence[str] = "all",
    budget: str = "quick",
    max_seconds: float | None = None,
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    baselines: Mapping[str, float] | None = None,
    lengths: Any = None,
    time_step: float = 1.0,
    time_unit: str = "steps",
    target_scale: float | Sequence[float] = 1.0,
    target_unit: str = "",
    seed: int = 0,
    progress: bool = True,
) -> AuditReport:
    """Run every check on a trained model, and return one report: numbers, verdicts, a page.

    Args:
        model: any module mapping ``(batch, time, channel)`` to ``(batch, out)`` or ``(batch, time, out)``, or a fitted
            estimator. Token ids, one logit, probabilities and outputs in a dict are recognized, and the report says
            so; `adapt` brings other forms to that one. It is left as it was.
        X: array ``(n, time, channel)``, ``(n, time)``, or a list of ``(time, channel)``.
        y: class indices or names ``(n,)`` or ``(n, time)``; or, for a regression, floating-point numbers ``(n,)``,
            ``(n, out)`` or ``(n, time, out)``. Without them only memory and stability can be asked about.
        train: the sequences the model was trained on, ``(X, y)`` or ``(X, y, lengths)``, for the generalization gap.
        checks: ``"all"``, or names of checks; with ``y`` skill is always measured, since without it no other verdict
            is given.
        budget: ``"quick"`` (about a minute for a small model) or ``"full"``.
        max_seconds: what the whole audit may take; each check estimates its own part, takes fewer sequences where time
            is short, and says so. Four minutes for ``"quick"`` and two hours for ``"full"`` if left out.
        thresholds: of verdicts, by check and name, over the defaults that the page shows.
        baselines: scores of other methods on the same sequences, by name; skill is judged beside them.
        lengths: true length of each row of a padded array ``X``.
        time_step: time between two steps, in ``time_unit``.
        time_unit: its name, in the plural.
        target_scale: of a regression, what one unit of ``y`` is worth in ``target_unit``, a number or one an output.
        target_unit: its name, for the page.
        seed: of every draw; the same seed gives the same numbers.
        progress: whether to show a progress bar.

    A check that cannot be run on this model, or fails, is left out, and the report says why. Verdicts are given where
    the model is beyond doubt better than guessing; elsewhere they are undecided.

    >>> class Last(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.rnn, self.head = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.head(self.rnn(x)[0][:, -1])
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(20, 30, 1)
    >>> report = audit(Last(), X, (X.mean((1, 2)) > 0).long(), checks=["memory", "gradients"], progress=False)
    >>> report.memory.half_life < 5, report.gradients.verdict
    (True, 'vanishing')
    """
    check_choice("budget", budget, BUDGETS)
    check_count("seed", seed, least=0)
    names = _chosen(checks, y is not None)
    limits, bounds = BUDGETS[budget], all_thresholds(thresholds)
    seconds = limits.seconds if max_seconds is None else max_seconds
    check_positive("max_seconds", seconds)
    started = time.perf_counter()
    known = train if isinstance(train, (tuple, list)) and len(train) in (2, 3) else None
    given = recognize(model, X, y, lengths, None if known is None else known[1])
    if known is not None:
        part = recognize(model, known[0], known[1], known[2] if len(known) == 3 else None, y)
        train = (part.X, part.y, part.lengths)
    model, X, y, lengths = given[:4]  # noqa: N806
    targets = np.zeros(len(X), int) if y is None else y
    data = eval_batch(model, X, targets, lengths, target_scale)
    cost = Cost(0.0, 0.0)
    if y is not None:
        # A model that cannot answer at all is refused here, once, instead of by every check.
        with audited(model, seed):
            data.scores(model, slice(0, 2), data.values[:2])
        cost = measured_cost(model, data, seed)
    own = None if y is None else _training_part(model, train, y, target_scale)
    context = AuditContext(
        model=model,
        data=data.sample(limits.sequences, seed),
        train=None if own is None else own.sample(limits.answers, seed),
        test=data.sample(limits.answers, seed),
        budget=limits,
        seconds=seconds,
        cost=cost,
        thresholds=bounds,
        baselines=baselines or {},
        seed=seed,
        time_step=time_step,
        time_unit=time_unit,
        target_scale=target_scale,
        target_unit=target_unit,
    )
    if progress:
        each = f"an answer takes {duration(cost.forward)}, a gradient {duration(cost.backward)}"
        tqdm.write(
            f"An audit of at most about {duration(seconds)}: {each}, a check {duration(context.share)}.", sys.stderr
        )
    wrong = misconduct(model, data, seed)
    results, refused = _run(names, context, y is not None, progress)
    device, _ = place_of(model)
    return AuditReport(
        model=given.name,
        classes=given.classes,
        notes=(*given.notes, f"No verdict is given: {wrong}.") if wrong else given.notes,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_sequences=len(context.test.values),
        num_steps=int(data.values.shape[1]),
        budget=budget,
        seed=seed,
        seconds=time.perf_counter() - started,
        task="" if y is None else "regression" if context.is_regression else "classification",
        checksum=data.checksum(),
        weights=weights_checksum(model),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        results=results,
        verdicts=_judged(results, bounds, f"Undecided: {wrong}." if wrong else ""),
        refused=refused,
        environment=environment(str(device)),
    )


def weights_checksum(model: nn.Module) -> str:
    """Return the SHA-256 of a model's parameters and buffers, with their names and kinds.

    >>> weights_checksum(nn.Identity())[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, Tensor):
            held = value.detach().cpu().contiguous()
            digest.update(f"{name} {held.dtype} {tuple(held.shape)}".encode())
            digest.update(held.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _chosen(chosen: str | Sequence[str], has_targets: bool) -> list[str]:
    """List the checks to run, in the order of the page."""
    known = all_checks()
    names = list(known) if chosen == "all" else [chosen] if isinstance(chosen, str) else list(chosen)
    require(len(names) > 0, "expected at least one check", "got none")
    for name in names:
        check_choice("check", name, known)
    return [name for name in known if name in names or (name == SKILL and has_targets)]


def _run(
    names: list[str], context: AuditContext, has_targets: bool, progress: bool
) -> tuple[dict[str, AuditResult], dict[str, str]]:
    """Run every check, and keep the results and the reasons of those without one."""
    results: dict[str, AuditResult] = {}
    refused: dict[str, str] = {}
    bar = tqdm(names, desc="auditing", disable=not progress)
    for name in bar:
        bar.set_postfix_str(name)
        check = all_checks()[name]
        try:
            missing = _missing(check, context, has_targets)
            if missing:
                refused[name] = missing
            else:
                results[name] = check.run(context)
        except InputError as error:
            refused[name] = str(error)
        except Exception as error:
            # One check that fails must not cost the report; what failed is told.
            reason = next(iter(str(error).splitlines()), "") or "no message"
            refused[name] = f"the check failed with {type(error).__name__}: {reason}."
    return results, refused


def _missing(check: Check, context: AuditContext, has_targets: bool) -> str:
    """Say what a check needs and does not have; empty if nothing."""
    if "y" in check.needs and not has_targets:
        return "needs y, the true classes or numbers."
    if "classes" in check.needs and context.is_regression:
        return "not applicable: it speaks of classes, and this model answers with numbers."
    if "module" in check.needs and isinstance(context.model, BlackBox):
        name = type(context.model.estimator).__name__
        return (
            f"not applicable: it follows states, gradients or weights of a torch module, and {name} has none of them."
        )
    if "train" in check.needs and context.train is None:
        return "needs the sequences the model was trained on: pass train=(X, y)."
    return context.bypassed if "state" in check.needs else ""


def _judged(
    results: Mapping[str, AuditResult], thresholds: Mapping[str, Mapping[str, float]], doubt: str = ""
) -> dict[str, CheckVerdict]:
    """Judge every result; where the model is not better than guessing beyond doubt, nothing else is decided.

    A ``doubt`` about the model as a whole leaves everything undecided.
    """
    verdicts: dict[str, CheckVerdict] = {}
    skilled = True
    for name, result in results.items():
        check, own = all_checks()[name], thresholds.get(name, {})
        judged = check.judge(result, own)
        if doubt:
            judged = Judged("unknown", UNDECIDED, f"{doubt} {judged.basis or result.summary()}")
        elif name == SKILL:
            skilled = judged.outcome in ("good", "caution")
        elif not skilled:
            judged = Judged("unknown", UNDECIDED, f"{NO_SKILL} {judged.basis or result.summary()}")
        if name == "lyapunov" and skilled and not doubt and _settling(result, results.get("certificates"), own):
            judged = Judged("good", "Settles", f"{judged.basis} That they fade for good is proved for every input.")
        grown = _growing(results.get("lyapunov"), result) if name == "memory" and judged.outcome == "good" else ""
        if grown:
            judged = Judged("unknown", UNDECIDED, f"{grown} {judged.basis or result.summary()}")
        number = None if check.number is None else check.number(result)
        verdicts[name] = CheckVerdict(judged.outcome, judged.label, judged.basis or result.summary(), number, dict(own))
    return verdicts


def _settling(stability: Any, proof: Any, limits: Mapping[str, float]) -> bool:
    """Say whether small changes of the state fade on the data, and are proved to fade for good under every input.

    Without the proof a slow decay could be a passing one.
    """
    return bool(proof and proof.certified and stability.standard_error and stability.ends[1] < -limits["neutral"])


def _growing(stability: Any, memory: Any) -> str:
    """Say why what older input changes may be growth of any change, and not memory; empty where it is not.

    The state tells, where it is followed; elsewhere effects that rise with age may be either.
    """
    if stability is None or not stability.parts:
        return f"Undecided: {UNFOLLOWED}." if memory.is_growing else ""
    rate = max(stability.largest, stability.parts[1])
    if rate * memory.num_steps <= GROWTH:
        return ""
    return "Undecided: small changes of the state grow along the data, so that old ones may count for that alone."


def _training_part(model: nn.Module, given: Any, y: Any, scale: Any) -> EvalBatch | None:
    if given is None:
        return None
    good = isinstance(given, (tuple, list)) and len(given) in (2, 3)
    require(good, "expected train=(X, y) or (X, y, lengths)", f"got {type(given).__name__}")
    values, targets, *more = given
    same = is_real(targets) == is_real(y)
    require(
        same, "expected y of the training part to be of the kind of y", "got classes in one and numbers in the other"
    )
    return named_part("training", eval_batch, model, values, targets, more[0] if more else None, scale)
