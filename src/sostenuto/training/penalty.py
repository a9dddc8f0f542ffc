"""The penalty λ‖ξ‖² of fermanian2021: training that keeps a network's norm in the signature's RKHS small."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.checks import require
from sostenuto.theory.rkhs import rkhs_norm
from sostenuto.theory.tensor_field import tensor_field
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
        whole = hasattr(model, "layer") and isinstance(getattr(model, "head", None), nn.Linear)
        require(
            whole, "expected a model with a layer and a linear head for rkhs_penalty", f"got {type(model).__name__}"
        )
        tensor_field(model.layer)
        settings = (config.rkhs_order, config.rkhs_method, config.rkhs_draws, config.rkhs_total_variation)
        return cls(config.rkhs_penalty, *settings)

    def __call__(self, model: nn.Module) -> Float[Tensor, ""]:
        """Give the penalty of the model's present weights, in float64."""
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
