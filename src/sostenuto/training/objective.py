"""What is minimized and what is reported: the loss and the metric of each task, as sums that processes can add up."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import require
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.encoding import Encoding
from sostenuto.training.config import TrainingConfig


@dataclass(frozen=True)
class RKHSPenalty:
    """λ·Σ‖ξ‖² over the outputs of a model, the read-out's bias left out; differentiable in all other weights.

    Reference: fermanian2021, section 3.2. Stability of predictions is what it buys: |z − z′| ≤ ‖ξ‖·‖S(X̄) − S(X̄′)‖ up to
    the discretization.

    >>> from sostenuto.models.prediction import SequenceClassifier
    >>> from sostenuto.nn import ResidualGRU
    >>> model = SequenceClassifier(ResidualGRU(2, 4, batch_first=True), num_classes=2)
    >>> RKHSPenalty(weight=0.1, order=2)(model).item() > 0
    True
    """

    weight: float
    order: int = 3
    method: str = "exact"
    draws: int = 64
    total_variation: float = 0.5

    @classmethod
    def of(cls, config: TrainingConfig, model: nn.Module) -> "RKHSPenalty | None":
        """Read the settings; a model that has no expansion is refused before training, not in its first step."""
        if not config.rkhs_penalty:
            return None
        from sostenuto.theory.tensor_field import tensor_field

        whole = hasattr(model, "layer") and isinstance(getattr(model, "head", None), nn.Linear)
        require(
            whole, "expected a model with a layer and a linear head for rkhs_penalty", f"got {type(model).__name__}"
        )
        tensor_field(model.layer)
        settings = (config.rkhs_order, config.rkhs_method, config.rkhs_draws, config.rkhs_total_variation)
        return cls(config.rkhs_penalty, *settings)

    def __call__(self, model: nn.Module) -> Float[Tensor, ""]:
        """Return the penalty of the model's present weights, in float64."""
        from sostenuto.theory.rkhs import rkhs_norm

        draws = self.draws if self.method == "stochastic" else None
        head: Any = model.head
        norm = rkhs_norm(
            model.layer,
            self.order,
            readout=head,
            total_variation=self.total_variation,
            method=self.method,
            draws=draws,
        )
        return self.weight * norm.squared.sum()


@dataclass(frozen=True, eq=False)
class Objective:
    """The loss and metric of a task.

    Classes: cross-entropy and accuracy. Numbers: squared error and its root, in the target's own unit. With a target
    for every step each step counts once, padding never. A sequence of several classes has the share of each as target.
    """

    classes: bool
    steps: bool
    target_scale: tuple[float, ...] = ()
    class_weights: Tensor | None = None
    label_smoothing: float = 0.0

    @classmethod
    def of(cls, encoding: Encoding, config: TrainingConfig, train: SequenceBatch) -> "Objective":
        """Choose the objective of ``encoding``'s task; balanced class weights are counted on ``train``."""
        weights = None
        if config.class_weights == "balanced" and encoding.classes and train.targets is not None:
            counted = train.targets[train.mask] if encoding.has_step_targets else train.targets
            counts = torch.bincount(counted.flatten(), minlength=len(encoding.classes)).clamp(min=1)
            weights = counts.sum() / (len(counts) * counts.float())
        return cls(
            classes=bool(encoding.classes),
            steps=encoding.has_step_targets,
            target_scale=encoding.target_scale,
            class_weights=weights,
            label_smoothing=config.label_smoothing,
        )

    @property
    def metric(self) -> str:
        """Name the metric."""
        return "accuracy" if self.classes else "rmse"

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger metric is better."""
        return self.classes

    def units(self, batch: SequenceBatch) -> Float[Tensor, " batch"]:
        """Count what each sequence contributes to a mean: its steps, or one."""
        return batch.lengths.float() if self.steps else torch.ones_like(batch.lengths, dtype=torch.float32)

    def losses(self, prediction: Float[Tensor, "batch ..."], batch: SequenceBatch) -> Float[Tensor, " batch"]:
        """Return each sequence's loss, summed over its steps, times its weight where the batch has weights."""
        losses = self._losses(prediction, batch)
        return losses if batch.weights is None else losses * batch.weights

    def _losses(self, prediction: Float[Tensor, "batch ..."], batch: SequenceBatch) -> Float[Tensor, " batch"]:
        assert batch.targets is not None
        mixed = self.classes and batch.targets.is_floating_point()
        if self.classes and self.label_smoothing > 0 and self.class_weights is None and not self.steps and not mixed:
            return F.cross_entropy(prediction, self._shares(batch.targets, prediction), reduction="none")
        if self.classes:
            scores = prediction.movedim(-1, 1) if self.steps else prediction
            weights = None if self.class_weights is None else self.class_weights.to(scores)
            errors = F.cross_entropy(
                scores, batch.targets, weight=weights, label_smoothing=self.label_smoothing, reduction="none"
            )
            return self._over_steps(errors, batch) if self.steps else errors
        return self._squares(prediction, batch).mean(-1)

    def metrics(self, prediction: Float[Tensor, "batch ..."], batch: SequenceBatch) -> Float[Tensor, " batch"]:
        """Return each sequence's contribution to the metric: right answers, or squared errors in the target's unit.

        Scores that are not finite are no answer, and never right.
        """
        assert batch.targets is not None
        if self.classes:
            right = ((prediction.argmax(-1) == batch.targets) & prediction.isfinite().all(-1)).float()
            return self._over_steps(right, batch) if self.steps else right
        scale = torch.tensor(self.target_scale, device=prediction.device, dtype=prediction.dtype)
        return (self._squares(prediction, batch) * scale**2).mean(-1)

    def finish(self, total: float, units: float) -> float:
        """Turn the sum of `metrics` over all sequences into the metric."""
        mean = total / units
        return mean if self.classes else mean**0.5

    def _shares(self, classes: Tensor, scores: Tensor) -> Float[Tensor, "batch class"]:
        """Give each class its share of the target: torch smooths given shares in a third of the operations."""
        count, smoothing = scores.shape[1], self.label_smoothing
        even = torch.full_like(scores, smoothing / count, requires_grad=False)
        return even.scatter_(1, classes[:, None], 1 - smoothing + smoothing / count)

    def _squares(self, prediction: Tensor, batch: SequenceBatch) -> Float[Tensor, "batch target"]:
        assert batch.targets is not None
        squares = (prediction.reshape(batch.targets.shape) - batch.targets) ** 2
        return self._over_steps(squares, batch) if self.steps else squares.flatten(1)

    def _over_steps(self, errors: Tensor, batch: SequenceBatch) -> Tensor:
        inside = batch.mask.reshape(*batch.mask.shape, *[1] * (errors.ndim - 2))
        return errors.masked_fill(~inside, 0.0).sum(1)
