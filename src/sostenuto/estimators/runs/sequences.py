"""What runs on sequences share: opening data, and how results and answers are shown."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sostenuto.checks import shown
from sostenuto.data.dataset import BatchTransform, Dataset, SequenceSet
from sostenuto.data.encoding import Encoding
from sostenuto.data.source import absolute, open_dataset, open_for_prediction
from sostenuto.estimators.runs import Answers, Conditions, FittedRun
from sostenuto.report.judgment import found_words, rare_classes
from sostenuto.report.page import render
from sostenuto.report.section import Section
from sostenuto.results import FitResult, plain
from sostenuto.training.config import DataConfig, RunConfig
from sostenuto.training.predict import Predictions, not_finite, predictions
from sostenuto.training.run_folder import predictions_csv
from sostenuto.training.summary import score


class SequenceRuns:
    """Runs that are fitted on a data set of sequences, each with its target."""

    def open(self, data: DataConfig, seed: int, conditions: Conditions) -> Dataset:
        """Open the data set or the files."""
        return open_dataset(data, data_dir=conditions.data_dir, seed=seed)

    def predict(self, folder: Path, config: RunConfig, source: str, conditions: Conditions) -> Answers:
        """Answer for a file, or for the test part of a named data set."""
        seed = config.training.seed
        sequences, transform = open_for_prediction(config.data, source, data_dir=conditions.data_dir, seed=seed)
        encoding, raw = self.raw(folder, config, sequences, transform, conditions)
        answered = answers(folder, encoding, raw, sequences)
        return replace(answered, warnings=[*answered.warnings, *self._changed(config, source, conditions)])

    def _changed(self, config: RunConfig, source: str, conditions: Conditions) -> list[str]:
        """Say it where the data that the run was trained on are asked for and are no longer the same."""
        if absolute(replace(config.data, source=source)).source != config.data.source:
            return []
        now = open_dataset(config.data, data_dir=conditions.data_dir, seed=config.training.seed).train.checksum()
        if now == config.data.checksum:
            return []
        return [f"{source} is no longer what the run was trained on (checksum {config.data.checksum}, now {now})"]

    def raw(
        self,
        folder: Path,
        config: RunConfig,
        sequences: SequenceSet,
        transform: BatchTransform | None,
        conditions: Conditions,
    ) -> tuple[Encoding, torch.Tensor]:
        """Return raw outputs for ``sequences`` and the encoding they are written in."""
        raise NotImplementedError


def answers(folder: Path, encoding: Encoding, raw: torch.Tensor, sequences: SequenceSet) -> Answers:
    """Translate raw outputs into answers, scored where targets of known classes are there."""
    lengths = torch.tensor([len(sequence) for sequence in sequences.sequences])
    said = predictions(encoding, raw, lengths)
    scored, warnings = _score(encoding, raw, sequences)
    missing = not_finite(raw, lengths)
    warnings += [missing] if missing else []
    facts = plain({"run": str(folder), **_facts(encoding, said, sequences), "score": scored})
    return Answers(predictions_csv(encoding, said, sequences), facts, len(sequences), scored, warnings)


def fitted_run(folder: Path, result: FitResult, sections: Sequence[Section] = ()) -> FittedRun:
    """Say what a fit gave; ``sections`` are the model's own on the page."""
    report = folder / "report.html"
    plain, own = result.to_dict(), list(sections)
    kept = ("model", "num_parameters", "metric", "score", "evaluated_on", "seconds")
    facts = {"run": str(folder), **{name: plain[name] for name in kept}} | {
        "data": result.data.name,
        "checksum": result.data.checksum,
        "best_epoch": result.curve.best_epoch,
        "balanced_accuracy": result.classification.balanced_accuracy if result.classification else None,
        "diverged": result.diverged,
        "baselines": [{"name": baseline.name, "score": baseline.score} for baseline in result.baselines],
        "compared": [],
        "report": str(report),
    }
    data = result.data
    epochs = f"{len(result.curve.epochs)} epochs in " if result.curve.epochs else ""
    rows: list[tuple[str, object]] = [
        ("data", f"{data.name}: {data.num_train} + {data.num_validation} + {data.num_test} sequences"),
        ("model", f"{result.model}, {result.num_parameters:,} parameters"),
        (f"{result.evaluated_on} {result.metric}", f"{result.score:.4f}"),
        *_class_rows(result),
        *((f"  {baseline.name}", f"{baseline.score:.4f}") for baseline in result.baselines),
        ("training", f"{epochs}{result.seconds:.1f} s"),
        ("report", report),
    ]

    def page(more: Sequence[Section]) -> str:
        return render(result, sections=[*more, *own])

    return FittedRun(folder, facts, rows, page, result, result.diverged)


def _class_rows(result: FitResult) -> list[tuple[str, object]]:
    """Show what accuracy hides: the mean over classes, and how many of the rare ones were found."""
    if result.classification is None:
        return []
    rare = [
        (f"  recall of {score.name}", f"{score.recall:.4f} ({found_words(score)})")
        for score in rare_classes(result)[:2]
    ]
    return [("  balanced accuracy", f"{result.classification.balanced_accuracy:.4f}"), *rare]


def _score(encoding: Encoding, raw: torch.Tensor, sequences: SequenceSet) -> tuple[dict[str, Any] | None, list[str]]:
    """Score what has a target of a known class, or a number, and warn of the others; None where nothing is scored."""
    if sequences.targets is None:
        return None, []
    unknown, strange = encoding.unknown_classes(sequences)
    numberless, wordy = encoding.not_numbers(sequences)
    affected, said = strange | wordy, []
    for names, what in ((unknown, "a class that training did not know"), (numberless, "a target that is no number")):
        if names:
            which = shown([repr(name) for name in names])
            knew = f"; it knew {shown([repr(name) for name in encoding.classes])}" if encoding.classes else ""
            said.append(
                f"{int(affected.sum())} of {len(sequences)} sequences have {what} ({which}): "
                f"predicted, but not scored{knew}"
            )
    known = np.flatnonzero(~affected)
    if len(known) == 0:
        return None, said
    batch = encoding.encode(sequences.take(known))
    rows = raw[known][:, : batch.values.shape[1]] if encoding.has_step_targets else raw[known]
    classification, regression = score(encoding, rows, batch)
    metric, scores = ("accuracy", classification) if classification else ("rmse", regression)
    value = getattr(scores, metric)
    return {"metric": metric, "value": value, "count": len(known), "unknown_classes": unknown}, said


def _facts(encoding: Encoding, said: Predictions, sequences: SequenceSet) -> dict[str, Any]:
    """Return the predictions with what they belong to, as JSON holds it."""
    numbered = sequences.numbered()
    facts = {"count": len(sequences), "sequences": _plain(numbered.ids), "predictions": _plain(said.labels)}
    if sequences.times is not None and encoding.has_step_targets:
        facts["times"] = _plain(sequences.times)
    elif sequences.times is not None and encoding.task == "forecast":
        facts["last_times"] = [str(times[-1]) for times in sequences.times]
    if said.probabilities is not None:
        facts |= {"classes": list(encoding.classes), "probabilities": _plain(said.probabilities)}
    return facts


def _plain(rows: Any) -> list[Any]:
    return [row.tolist() if hasattr(row, "tolist") else row for row in rows]
