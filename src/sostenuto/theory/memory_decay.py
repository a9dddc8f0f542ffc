"""How memory decays: of linear RNNs, of what they approximate, and as fading memory (wang2024, appendix A)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, linalg

from sostenuto.checks import check_count, check_positive, require
from sostenuto.theory.bound import Assumption, Bound, make_bound


def response_decay_bound(
    recurrent: Float[Tensor, "state state"],
    input_map: Float[Tensor, " state"],
    readout: Float[Tensor, " state"],
    *,
    decay: float,
    order: int = 1,
) -> Bound:
    """Bound sup_{t≥0} e^{βt}|y^(k)(t)| for the response y(t) = cᵀ∫₀ᵗ e^{Ws} b ds of a linear RNN to a constant input.

    y^(k)(t) = cᵀ e^{Wt} W^{k−1} b. With P of (W + βI)ᵀP + P(W + βI) = −I the norm √(hᵀPh) falls as e^{−βt} at least:

        e^{βt}|y^(k)(t)| ≤ √(cᵀP⁻¹c)·√((W^{k−1}b)ᵀP(W^{k−1}b)),

    where every eigenvalue of W lies below −β; no eigenvalue of a W that is not normal bounds it alone
    (``docs/errata.md``, wang2024.1). By theorem A.4 of wang2024 what linear RNNs approximate with all its derivatives
    inherits the decay: see `inherited_decay_bound`. The term ``abscissa`` is the largest real part.

    Args:
        recurrent: W.
        input_map: b, of one channel.
        readout: c.
        decay: β ≥ 0.
        order: k ≥ 1.

    Returns:
        The bound; NaN where an eigenvalue is not below −β.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> round(response_decay_bound(-2 * torch.eye(1).double(), one, one, decay=1.0).value, 6)  # e^{−2t}
    1.0
    """
    check_count("order", order)
    check_positive("decay", decay, zero=True)
    w, b, c = (part.detach().double() for part in (recurrent, input_map, readout))
    abscissa = float(linalg.eigvals(w).real.max())
    stable = Assumption("Re λ < −β for every eigenvalue of W", abscissa < -decay, abscissa + decay)
    value = math.nan
    if stable.holds:
        eye = torch.eye(len(w), dtype=torch.float64)
        shifted = w + decay * eye
        system = torch.kron(shifted.mT.contiguous(), eye) + torch.kron(eye, shifted.mT.contiguous())
        p = linalg.solve(system, -eye.flatten()).reshape(w.shape)
        p = (p + p.mT) / 2
        start = linalg.matrix_power(w, order - 1) @ b
        positive = float(linalg.eigvalsh(p)[0]) > 0
        value = math.sqrt(float(c @ linalg.solve(p, c)) * float(start @ p @ start)) if positive else math.inf
    return make_bound(f"e^{{βt}}|y^({order})(t)|", value * (1 + 1e-9), {"abscissa": abscissa}, [stable])


def inherited_decay_bound(
    times: Float[Tensor, " time"], *, size: float, decay: float, errors: Float[Tensor, " model"]
) -> Float[Tensor, " time"]:
    """Bound |f(t)| for what functions |f_m(t)| ≤ C e^{−βt} approximate to sup_t |f(t) − f_m(t)| ≤ ε_m.

    |f(t)| ≤ C e^{−βt} + inf_m ε_m. With ε_m → 0 it is C e^{−βt} itself, the same β: lemma A.10 of wang2024, which
    gives every smaller one.

    Args:
        times: t ≥ 0.
        size: C.
        decay: β, common to all f_m.
        errors: ε_m.

    Returns:
        The bound at every time.

    >>> inherited_decay_bound(torch.tensor([0.0, 1.0]), size=1.0, decay=1.0, errors=torch.tensor([0.1, 0.01]))
    tensor([1.0100, 0.3779])
    """
    check_positive("size", size, zero=True)
    check_positive("decay", decay, zero=True)
    require(len(errors) > 0 and bool((errors >= 0).all()), "expected errors of at least 0", f"got {errors.tolist()}")
    return size * torch.exp(-decay * times) + errors.min()


def fading_memory_gain(response: Float[Tensor, "lag channel"], weight: Float[Tensor, " lag"]) -> Bound:
    """Bound |H(x) − H(x′)| / sup_s w_s‖x_{t−s} − x′_{t−s}‖₂ for H_t(x) = Σ_s ⟨ρ_s, x_{t−s}⟩: Σ_s ‖ρ_s‖₂/w_s, attained.

    Where it is finite H has fading memory with the weight w: eq. (25) of wang2024 holds with δ = ε/gain. Neither
    decaying nor fading memory implies the other (remark A.5).

    Args:
        response: ρ_s, the response to an impulse s steps ago.
        weight: w_s in (0, 1], falling.

    Returns:
        The gain.

    >>> lags = torch.arange(3, dtype=torch.float64)
    >>> fading_memory_gain(0.25**lags[:, None], 0.5**lags).value
    1.75
    """
    require(weight.shape == response.shape[:1], f"expected {len(response)} weights", f"got {tuple(weight.shape)}")
    falling = bool((weight.diff() <= 0).all()) and bool((weight > 0).all()) and float(weight.max()) <= 1
    condition = Assumption("0 < w ≤ 1, falling", falling, float(weight.min()))
    sizes = linalg.vector_norm(response.double(), dim=1)
    terms = sizes / weight.double()
    return make_bound("fading memory gain", float(terms.sum()), {"largest_term": float(terms.max())}, [condition])


def contraction_fading_gain(factor: float, gain: float, *, decay: float) -> Bound:
    """Bound ‖h_t − h′_t‖ / sup_s w_s‖x_{t−s} − x′_{t−s}‖ with w_s = decay^s: gain/(1 − factor/decay).

    For any recurrence with ‖h⁺ − h′⁺‖ ≤ factor·‖h − h′‖ + gain·‖x − x′‖ and equal states long ago, such as a layer with
    a discrete certificate. So a contraction has fading memory for every decay in (factor, 1]: wang2024, eq. (25), with
    δ = ε/gain.

    Args:
        factor: of the states, in [0, 1).
        gain: of the inputs.
        decay: of the weight from step to step.

    Returns:
        The gain; NaN where decay does not lie in (factor, 1].

    >>> contraction_fading_gain(0.5, 1.0, decay=1.0).value
    2.0
    """
    for name, number in (("factor", factor), ("gain", gain), ("decay", decay)):
        check_positive(name, number, zero=True)
    inside = Assumption("factor < decay ≤ 1", factor < decay <= 1, decay)
    value = gain / (1 - factor / decay) if inside.holds else math.nan
    return make_bound("fading memory gain", value, {}, [inside])
