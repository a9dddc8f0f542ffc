"""What a certificate says: whether states approach each other, how fast, and what was checked to know it."""

from dataclasses import dataclass, replace

from torch import nn
from torch.nn.utils import parametrize, prune

from sostenuto.results import Record

_HARMLESS = {"__init__", "__repr__", "extra_repr", "reset_parameters"}
_LIBRARIES = ("sostenuto", "torch")


def changed(module: nn.Module) -> str:
    """Say what makes a module run other code than the library's, which proofs are about; an empty string if nothing.

    A proof reads the weights of a module and assumes the library's code around them. Methods that a subclass or the
    module itself replaces change that, and so may a hook, here or in a module inside. What a subclass adds under names
    of its own, and how it makes or shows its weights, changes nothing; pruned weights are made anew, as a call does.

    >>> louder = nn.ReLU()
    >>> louder.forward = lambda input: 2 * input
    >>> changed(nn.Sequential(nn.ReLU(), louder)), changed(nn.ReLU())
    ('ReLU changes forward', '')
    """
    own = parametrize.type_before_parametrizations(module)
    known = next(kind for kind in own.__mro__ if kind.__module__.partition(".")[0] in _LIBRARIES)
    added = own.__mro__[: own.__mro__.index(known)]
    defined = {name for kind in added for name in vars(kind)} | set(vars(module))
    replaced = {name for name in defined - _HARMLESS if _is_code(getattr(known, name, None))}
    if replaced:
        return f"{own.__name__} changes {', '.join(sorted(replaced))}"
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    for hook in hooks:
        if not isinstance(hook, prune.BasePruningMethod):
            return f"{own.__name__} has a hook"
        hook(module, ())
    inside = (child for name, child in module.named_children() if name != "parametrizations")
    return next(filter(None, map(changed, inside)), "")


def _is_code(attribute: object) -> bool:
    return callable(attribute) or isinstance(attribute, property)


@dataclass(frozen=True)
class Certificate(Record):
    """A proof about a recurrence, or the condition that fails.

    Where ``holds``, any two states h, h̃ that read the same input satisfy, at every later time t and for every input
    that ``scope`` allows, |h(t) − h̃(t)|₂ ≤ overshoot · exp(−rate · t) · |h(0) − h̃(0)|₂. Time is counted in the units of
    the differential equation, in steps for a discrete map. ``rate`` and ``overshoot`` are None where the statement has
    none: see ``checked``. Where not ``holds``, ``reason`` names the condition that fails with its value; nothing is
    then known of the recurrence, except that this test does not prove it stable.

    ``spans`` are the least and the largest time span that a discrete certificate of a layer covers, in any order:
    (1, 1) is a layer called without ``timespans``. It is None where there are none: for a differential equation, and
    for a map that is no step of one.

    ``test`` says which one decided: ``"norm"``, ``"matrix inequality"``, ``"riccati equation"``, ``"linear"`` or
    ``"none"``.
    ``multipliers`` are the diagonal of Λ and ``metric`` the rows of P, so that anyone can check the inequality again.

    >>> Certificate("contraction", False, "norm", "μ₂(A) + ‖W‖₂ < 0", reason=fails("μ₂(A) + ‖W‖₂ < 0", 0.9)).reason
    'not applicable: μ₂(A) + ‖W‖₂ < 0 fails (0.9)'
    """

    kind: str
    holds: bool
    test: str
    checked: str
    rate: float | None = None
    overshoot: float | None = None
    reason: str = ""
    scope: str = "every input"
    spans: tuple[float, float] | None = None
    metric: tuple[tuple[float, ...], ...] = ()
    multipliers: tuple[float, ...] = ()

    def summary(self) -> str:
        """Say it in a sentence."""
        if not self.holds:
            return f"No {self.kind} certificate: {self.reason}."
        said = f"Certified ({self.kind}, {self.test} test) for {self.scope}: {self.checked}"
        return said + (f", rate {self.rate:.4g}." if self.rate is not None else ".")


def over_spans(certificate: Certificate, spans: tuple[float, float]) -> Certificate:
    """Say in a certificate which time spans it covers.

    >>> over_spans(Certificate("discrete", True, "norm", "‖F‖₂ < 1"), (0.5, 2.0)).scope
    'every input, time spans from 0.5 to 2'
    """
    low, high = spans
    said = f"time spans of {low:.6g}" if low == high else f"time spans from {low:.6g} to {high:.6g}"
    return replace(certificate, spans=spans, scope=f"{certificate.scope}, {said}")


def fails(condition: str, value: float | str) -> str:
    """Name a condition that fails, and by what value.

    >>> fails("‖P‖₂ + ‖Q‖₂‖W‖₂ < 1", 1.25)
    'not applicable: ‖P‖₂ + ‖Q‖₂‖W‖₂ < 1 fails (1.25)'
    """
    shown = value if isinstance(value, str) else f"{value:.6g}".replace("-", "−")
    return f"not applicable: {condition} fails ({shown})"


def refused(kind: str, condition: str, value: float | str) -> Certificate:
    """Answer "not applicable" for a recurrence that a certificate of this ``kind`` does not cover.

    >>> refused("lure", "the form h′ = Ah + Bσ(Ch + z)", "a gate multiplies the state").holds
    False
    """
    return Certificate(kind, False, "none", condition, reason=fails(condition, value))
