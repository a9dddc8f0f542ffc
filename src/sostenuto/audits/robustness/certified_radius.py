"""Certified radius: how far a sequence may be moved before a proof no longer holds the model to its answer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from sostenuto.audits.base import AuditResult
from sostenuto.audits.batches import ClassificationBatch, classification_batch
from sostenuto.audits.model import audited, is_classifier, place_of, still_copy
from sostenuto.audits.robustness.lipschitz import ContractedNorm, state_maps
from sostenuto.checks import check_count
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn.certificates import changed
from sostenuto.report.numbers import number, percent
from sostenuto.results import Numbers
from sostenuto.training.processes import environment

METHOD = (
    "From the contraction rate, the input matrix and the read-out of the weights in float64: no change of a sequence "
    "that is smaller in the Frobenius norm than its radius turns the answer; margins in float64, the accuracy in the "
    "model's own precision, in evaluation mode."
)


@dataclass(frozen=True, kw_only=True)
class CertifiedRadius(AuditResult):
    """The radius of every sequence, or ``reason``, which says why nothing can be certified.

    ``lipschitz`` is L with ‖Δscores‖₂ ≤ L‖Δx‖_F for the longest sequence; ``rates`` the contraction ρ per step of each
    layer in the norm that its certificate names. ``radii`` belong to the answers given, ``right`` says which of those
    are true; ``median_norm`` is the median ‖x‖_F, to compare radii with. Radii are of exact arithmetic: rounding can
    turn an answer whose margin is itself of the size of rounding.
    """

    reason: str
    lipschitz: float | None
    rates: Numbers
    radii: Numbers
    right: tuple[bool, ...]
    median_norm: float
    clean_accuracy: float
    count: int

    def certified_accuracy(self, radius: float) -> float:
        """Give the share of sequences that are answered rightly, whatever a change below ``radius`` does."""
        if not self.radii:
            return self.clean_accuracy if radius == 0 else 0.0
        held = [good and own >= radius for good, own in zip(self.right, self.radii, strict=True)]
        return sum(held) / self.count

    def summary(self) -> str:
        """Say how far sequences may be moved, or why nobody knows."""
        if self.reason:
            return f"No radius is certified: {self.reason}."
        middle = float(np.median(self.radii))
        proved, clean = percent(self.certified_accuracy(middle)), percent(self.clean_accuracy)
        return (
            f"For half of the sequences no change below {number(middle, digits=3)} in the Frobenius norm turns the "
            f"answer (their own norm is {number(self.median_norm, digits=3)} in the median); at that radius {proved} "
            f"are certified right, {clean} at 0."
        )

    def plot(self, ax: Any) -> None:
        """Draw the certified accuracy over the radius."""
        radii = np.unique([0.0, *self.radii])
        shares = [100 * self.certified_accuracy(float(radius)) for radius in radii]
        ax.step(radii, shares, where="pre", marker="o" if len(radii) == 1 else "", label="certified")
        ax.set_xlim(left=0)
        ax.set_ylim(0, 102)
        ax.set_xlabel("change of the sequence, Frobenius norm")
        ax.set_ylabel("accuracy, %")
        ax.legend()


def certified_radius(
    model: nn.Module,
    X: Any,  # noqa: N803
    y: Any,
    *,
    seed: int = 0,
    lengths: Any = None,
    batch_size: int = 256,
) -> CertifiedRadius:
    """Prove for each sequence how far it may be moved, in the Frobenius norm, without the answer turning.

    A layer h ← F h + Q σ(W h + V u_t + b), slopes of σ at most s, has a discrete certificate: a norm |δ|_P = |Rδ|₂,
    P = RᵀR, in which two states that read the same input approach by ρ < 1 per step. Two inputs u, ũ, from the same
    start, part by

        |δ_{t+1}|_P ≤ ρ|δ_t|_P + g|Δu_t|₂,   g = s‖RQ‖₂‖V‖₂,

    the first term from the certificate (same input, two states), the second from one state and two inputs. Unrolled,
    |δ_T|_P ≤ g Σ_t ρ^{T−1−t}|Δu_t|₂ ≤ g√(Σ_{k<T} ρ^{2k})·‖Δu‖_F by Cauchy and Schwarz, and √(Σ_t |δ_t|²_P) ≤
    g(Σ_{k<T} ρᵏ)‖Δu‖_F by Young, which serves layers underneath (times ‖[I 0]R⁻¹‖₂ for their output) and, over √T, a
    read-out of the mean. Scores are C h + d, so the difference of two of them moves by at most L_jk‖Δx‖_F, with L_jk =
    |(c_j − c_k)[I 0]R⁻¹|₂ times what was found, and the answer j stands while z_j − z_k > L_jk‖Δx‖_F for all k:

        radius = min_k (z_j − z_k)/L_jk ≥ margin/(√2·L),   L = ‖C[I 0]R⁻¹‖₂ times the same.

    Reference: erichson2021, proposition 1 as corrected in ``docs/errata.md``
    (erichson2021.1, erichson2021.4), for the certificate; Tsuzuku et al. 2018 for margin/(√2·L).

    Args:
        model: a `SequenceClassifier` that reads out the last state or the mean of all, on a LipschitzRNN, RNN, IndRNN
            or another layer whose map has this form. Any other model is asked for its accuracy alone.
        X: array ``(n, time, channel)``, ``(n, time)`` of one channel, or a list of ``(time, channel)``.
        y: class indices ``(n,)``.
        seed: for a model that draws random numbers.
        lengths: true length of each row of a padded array ``X``.
        batch_size: sequences asked about at once.

    >>> from sostenuto.nn import IndRNN
    >>> model = SequenceClassifier(IndRNN(1, 1, batch_first=True, activation="identity"), 2)
    >>> with torch.no_grad():
    ...     for weight, value in zip(model.parameters(), ([[2.0]], [0.0], [0.0], [[-1.0], [1.0]], [0.0, 0.0])):
    ...         _ = weight.copy_(torch.tensor(value))
    >>> round(certified_radius(model, torch.tensor([[[0.5]]]), [1]).radii[0], 6)  # scores ∓2x turn at x = 0
    0.5
    """
    check_count("seed", seed, least=0)
    check_count("batch_size", batch_size)
    data = classification_batch(model, X, y, lengths)
    with audited(model, seed):
        right = data.all_marks(model, batch_size)[:, 0]
        found = _certified(model, data, batch_size)
    reason, proved = (found, None) if isinstance(found, str) else ("", found)
    device, _ = place_of(model)
    norms = (data.values.double() * data.mask[:, :, None]).flatten(1).norm(dim=1)
    return CertifiedRadius(
        model=type(model).__name__,
        method=METHOD,
        seed=seed,
        settings={"batch_size": batch_size},
        checksum=data.checksum(),
        environment=environment(str(device)),
        reason=reason,
        lipschitz=None if proved is None else proved.lipschitz,
        rates=() if proved is None else proved.rates,
        radii=() if proved is None else tuple(proved.radii.tolist()),
        right=() if proved is None else tuple(proved.right.tolist()),
        median_norm=float(norms.median()),
        clean_accuracy=data.score(right.sum()),
        count=len(data.true_targets),
    )


@dataclass(frozen=True, eq=False)
class _Proved:
    lipschitz: float
    rates: Numbers
    radii: Float[Tensor, " batch"]
    right: Tensor


def _certified(model: nn.Module, data: ClassificationBatch, batch_size: int) -> _Proved | str:
    """Certify all sequences on a copy of the model in float64, or say why not."""
    if not is_classifier(model):
        return f"not applicable: a SequenceClassifier fails ({type(model).__name__} is another model)"
    if replaced := changed(model):
        return f"not applicable: a model that runs as the library defines it fails ({replaced})"
    if model.readout not in ("last", "mean"):
        return f"not applicable: a read-out that is linear in the states fails ({model.readout})"
    still = still_copy(model)
    maps = state_maps(still.layer)
    if isinstance(maps, str):
        return maps
    norms = [one.norms() for one in maps]
    if not bool(torch.isfinite(still.head.weight).all()):
        return "not applicable: finite weights fails (the read-out has others)"
    scores = torch.cat([data.scores(still, rows, data.values[rows].double()) for rows in data.batches(batch_size)])
    steps = data.mask.sum(1)
    radii = torch.empty(len(scores), dtype=torch.float64)
    for count in steps.unique().tolist():
        rows = steps == count
        radii[rows] = _radii(scores[rows], _pair_constants(still, norms, count))
    longest = int(steps.max())
    rates = tuple(min(one.rate for one in level) for level in norms)
    lipschitz = min(scale * float(torch.linalg.matrix_norm(read, 2)) for scale, read in _read(still, norms, longest))
    return _Proved(lipschitz, rates, radii, scores.argmax(-1) == data.targets)


def _read(
    model: SequenceClassifier, norms: list[list[ContractedNorm]], steps: int
) -> list[tuple[float, Float[Tensor, "classes state"]]]:
    """Give, for each norm of the top layer, a bound on its state's change over ‖Δx‖_F, and C[I 0]R⁻¹."""
    below = 1.0
    for level in norms[:-1]:
        below *= min(one.whole(steps) * float(torch.linalg.matrix_norm(one.read, 2)) for one in level)
    last = model.readout == "last"
    weight = model.head.weight.detach()
    return [
        (below * (one.end(steps) if last else one.whole(steps) / steps**0.5), weight @ one.read) for one in norms[-1]
    ]


def _pair_constants(
    model: SequenceClassifier, norms: list[list[ContractedNorm]], steps: int
) -> Float[Tensor, "classes classes"]:
    """Give L_jk for all pairs of classes: the least over the norms of the top layer, rounded up."""
    found = [
        scale * torch.cdist(read, read, compute_mode="donot_use_mm_for_euclid_dist")
        for scale, read in _read(model, norms, steps)
    ]
    return torch.stack(found).amin(0) * (1 + 1e-9)


def _radii(
    scores: Float[Tensor, "batch classes"], constants: Float[Tensor, "classes classes"]
) -> Float[Tensor, " batch"]:
    """Give min_k (z_j − z_k)/L_jk for the answer j; a class that cannot come nearer is no danger unless it is level."""
    best, answer = scores.max(-1)
    margins = best[:, None] - scores
    others = torch.arange(scores.shape[1]) != answer[:, None]
    each = torch.where(margins > 0, margins / constants[answer], torch.zeros_like(margins))
    return each.masked_fill(~others, torch.inf).amin(-1).clamp(max=1e300)
