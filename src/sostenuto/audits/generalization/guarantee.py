"""What fermanian2021 guarantees of a trained model on new sequences, or which of its assumptions fails."""

import torch
from torch import nn

from sostenuto.audits.batches import EvalBatch
from sostenuto.audits.model import still_copy
from sostenuto.checks import InputError
from sostenuto.data.batch import SequenceBatch
from sostenuto.models.base import SequenceModel
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor, SequenceToSequence
from sostenuto.nn.residual_rnn import ResidualRNN
from sostenuto.theory.generalization import generalization_bound

Guarantee = tuple[float | None, str, dict[str, float]]
"""The bound, or None and why; and its terms."""


def guaranteed_risk(
    model: nn.Module,
    data: EvalBatch,
    delta: float,
    total_variation: float,
    *,
    target_bound: float | None = None,
) -> Guarantee:
    """Ask `generalization_bound` about the training part; a model of another form than the theory's has no bound.

    Reference: fermanian2021, theorems 2 and 3, as derived in ``docs/rnn_as_kernel.md``.
    """
    real = data.targets.is_floating_point()
    name = "SequenceRegressor" if real else "SequenceClassifier"
    forms = (SequenceRegressor, SequenceToSequence) if real else (SequenceClassifier,)
    if not _has_form(model, forms):
        form = f"a {name} on a ResidualRNN"
        return None, f"not applicable: it needs {form}, and this is a {_described(model)}", {}
    if real and target_bound is None:
        return None, "not applicable: a bound on ‖y‖ chosen in advance fails (target_bound was not given)", {}
    # The theory reckons on the CPU, whatever the model's device.
    still = still_copy(model)
    dtype = torch.float64
    steps = data.values.shape[1]
    lengths = torch.full((len(data.values),), steps) if data.lengths is None else data.lengths
    targets = data.targets.to(dtype) if real else data.targets
    batch = SequenceBatch(data.values.to(dtype), lengths, targets, has_step_targets=data.has_step_targets)
    try:
        found = generalization_bound(still, batch, delta, total_variation=total_variation, target_bound=target_bound)
    except InputError as error:
        return None, f"not applicable: {str(error).removesuffix('.')}", {}
    if not found.applicable:
        return None, found.reason, {}
    return found.value, "", dict(found.terms)


def guarantee_words(bound: float | None, reason: str, limit: float, said: str) -> str:
    """Put the guarantee into words; a ``bound`` of ``limit`` or more says nothing.

    >>> guarantee_words(None, "not applicable: x < 1 fails (2)", 1.0, "")
    'No guarantee for new sequences (fermanian2021) applies: x < 1 fails (2).'
    """
    if bound is None:
        return f"No guarantee for new sequences (fermanian2021) applies: {reason.removeprefix('not applicable: ')}."
    if bound >= limit:
        return f"The guarantee for new sequences (fermanian2021) applies but says nothing: {said}."
    return f"Guaranteed for new sequences (fermanian2021): {said}."


def _has_form(model: nn.Module, forms: tuple[type[SequenceModel], ...]) -> bool:
    """Say whether a model runs a ResidualRNN and a linear head, as the proof assumes, and nothing else."""
    for form in forms:
        if isinstance(model, form) and type(model).forward is form.forward:
            return isinstance(model.layer, ResidualRNN) and type(model.head) is nn.Linear
    return False


def _described(model: nn.Module) -> str:
    name = type(model).__name__
    return (
        f"{name} on {type(model.layer).__name__.removeprefix('Parametrized')}"
        if isinstance(model, SequenceModel)
        else name
    )
