"""Residual RNNs that tell which way a spiral turns, trained with fermanian2021's penalty or without, and attacked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sostenuto.audits.robustness.attacks import projected_ascent
from sostenuto.data.dataset import SequenceSet
from sostenuto.data.tasks.spirals import CLASSES, spirals
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import ResidualRNN
from sostenuto.theory.rkhs import rkhs_norm
from sostenuto.theory.star_product import products_ending_in_time
from sostenuto.theory.tensor_field import rnn_field

NEEDED = ("hidden_size", "num_train", "num_test", "points", "epochs", "learning_rate", "halve_every", "order", "every")
"""The settings that a training depends on."""

Labeled = tuple[Float[Tensor, "n time 2"], Int[Tensor, " n"]]


@dataclass(frozen=True)
class Penalty:
    """λ times the squared norm, averaged over the two scores; ``released`` as the published code computes it."""

    weight: float
    released: bool = False

    @property
    def name(self) -> str:
        """Say it in a legend.

        >>> Penalty(0.0).name, Penalty(1e-4).name, Penalty(0.1, released=True).name
        ('no penalty', 'λ = 0.0001', 'λ = 0.1, as released')
        """
        if self.weight == 0:
            return "no penalty"
        return f"λ = {self.weight:g}" + (", as released" if self.released else "")

    @property
    def key(self) -> str:
        """Name its cells."""
        return f"{'released' if self.released else 'corrected'}/weight={self.weight:g}"

    def __call__(self, model: SequenceClassifier, order: int) -> Float[Tensor, ""]:
        """Return the penalty of the model's present weights."""
        squared = released_squared_norm(model, order) if self.released else squared_norm(model, order)
        return self.weight * squared


def arms(weights: Sequence[float], released_weights: Sequence[float]) -> list[Penalty]:
    """List the trainings to compare: the corrected penalty at each weight, then the released one."""
    return [Penalty(weight) for weight in weights] + [Penalty(weight, released=True) for weight in released_weights]


def squared_norm(model: SequenceClassifier, order: int) -> Float[Tensor, ""]:
    """Average ‖ξ‖² of the two scores: biases of the recurrence count and learn, the read-out's does not enter."""
    return rkhs_norm(model.layer, order, readout=_head(model)).squared.mean()


def released_squared_norm(model: SequenceClassifier, order: int) -> Float[Tensor, ""]:
    """Compute what the published code penalizes (``docs/errata.md``, fermanian2021.6).

    The bias of the recurrence is frozen, and the read-out's is added to every word's coefficient, also of the words
    that do not end in time, whose coefficients are 0.
    """
    layer: Any = model.layer
    head = _head(model)
    field = rnn_field(layer.weight_hh_l0, layer.weight_ih_l0, layer.bias_ih_l0.detach())
    weight, bias = head.weight.double(), head.bias.double()
    total = bias.new_zeros(())
    for k, ending in enumerate(products_ending_in_time(field, order), start=1):
        words = ending.reshape(-1, field.state_size) @ weight.mT
        others = field.letters**k - len(words)
        total = total + ((words + bias).square().sum(0) + others * bias.square()).mean() / math.factorial(k) ** 2
    return total


def trained(settings: Mapping[str, Any], penalty: Penalty, seed: int) -> tuple[SequenceClassifier, dict[str, Any]]:
    """Train one network on its own spirals, full batch with Adam; give it and its norms through training.

    Networks of one seed share data and first weights, whatever the penalty.
    """
    torch.manual_seed(seed)
    model = SequenceClassifier(ResidualRNN(2, settings["hidden_size"], batch_first=True), 2)
    (values, labels), _ = spiral_data(settings, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, settings["halve_every"], 0.5)
    history: dict[str, list[float]] = {"epoch": [], "frobenius": [], "norm": [], "loss": []}
    for epoch in range(settings["epochs"] + 1):
        loss = F.cross_entropy(model(values), labels)
        if epoch % settings["every"] == 0:
            _record(history, model, settings["order"], epoch, loss.item())
        if epoch == settings["epochs"]:
            break
        if penalty.weight:
            loss = loss + penalty(model, settings["order"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval(), {**history, "train": _accuracy(model, values, labels)}


def attacked(model: SequenceClassifier, test: Labeled, epsilons: Sequence[float], steps: int) -> list[float]:
    """Attack every spiral that is told right by projected gradient ascent from 0, Frobenius norm; give accuracies."""
    values, labels = test
    model.requires_grad_(False)
    right = model(values).argmax(1) == labels
    held, truth = values[right], labels[right]
    results = []
    for epsilon in epsilons:
        moved = held
        if epsilon > 0 and len(held):
            moved = projected_ascent(
                lambda changed: F.cross_entropy(model(changed), truth, reduction="none"),
                held,
                torch.ones(*held.shape[:2], 1, dtype=torch.bool),
                torch.zeros_like(held),
                norm="l2",
                epsilon=epsilon,
                steps=steps,
                step_size=1.5 * epsilon / steps,
                bounds=None,
            )
        results.append(int((model(moved).argmax(1) == truth).sum()) / len(labels))
    return results


def spiral_data(settings: Mapping[str, Any], seed: int) -> tuple[Labeled, Labeled]:
    """Draw the training and the test part of a run."""
    sizes = {"num_train": settings["num_train"], "num_test": settings["num_test"], "num_steps": settings["points"]}
    data = spirals(seed, **sizes)
    assert data.test is not None, "the task has a test part"
    return _labeled(data.train), _labeled(data.test)


def _labeled(part: SequenceSet) -> Labeled:
    values = torch.from_numpy(np.stack(part.sequences)).float()
    return values, torch.from_numpy((np.asarray(part.targets) == CLASSES[1]).astype(np.int64))


def _head(model: SequenceClassifier) -> torch.nn.Linear:
    assert isinstance(model.head, torch.nn.Linear)
    return model.head


def _record(history: dict[str, list[float]], model: SequenceClassifier, order: int, epoch: int, loss: float) -> None:
    layer: Any = model.layer
    with torch.no_grad():
        history["norm"].append(float(squared_norm(model, order).sqrt()))
        history["frobenius"].append(math.hypot(float(layer.weight_hh_l0.norm()), float(layer.weight_ih_l0.norm())))
    history["epoch"].append(float(epoch))
    history["loss"].append(loss)


def _accuracy(model: SequenceClassifier, values: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(values).argmax(1) == labels).double().mean())
