"""A certificate beside what was measured, and many of them in a few sentences: equal reasons are given once."""

import re
from dataclasses import dataclass

from sostenuto.nn.certificates import Certificate
from sostenuto.report.numbers import counted, number
from sostenuto.results import Record

NAMES = {"contraction": "contraction", "lure": "Lur'e", "discrete": "discrete-step"}
MOST_LISTED = 4
_REASON = re.compile(r"not applicable: (?P<condition>.*) fails \((?P<value>.*)\)(?P<rest>.*)")
_CLAUSE = re.compile(r"\w+ (has another form|is a discrete map)")
"""What says by itself why a certificate does not apply, without the condition."""


@dataclass(frozen=True)
class JudgedCertificate(Record):
    """One layer's certificate and the slowest contraction rate measured in its norm; None where there is no field.

    A measured rate is negative where nearby states part. Nothing measured may be slower than what is certified.
    """

    layer: int
    certificate: Certificate
    measured: float | None

    @property
    def contradicted(self) -> bool:
        """Say whether the data show a slower rate than the certificate promises: never, unless something is broken."""
        proved = self.certificate.rate if self.certificate.holds else None
        if proved is None or self.measured is None:
            return False
        return self.measured < proved - 1e-7 * (1 + abs(proved))


def described(judged: tuple[JudgedCertificate, ...], looked_at: int) -> str:
    """Say which certificates hold, at which rates, and why the others do not.

    >>> form = "not applicable: the form h′ = Ah + Bσ(Wh + z) fails (LSTM has another form)"
    >>> one = JudgedCertificate(0, Certificate("discrete", False, "none", "", reason=form), 0.25)
    >>> described((one, one), 5)
    'No certificate applies: LSTM has another form. Slowest contraction measured at 5 steps of the data: 0.25 per step.'
    """
    layers = {one.layer for one in judged}
    held = [one for one in judged if one.certificate.holds]
    failed = [one for one in judged if not one.certificate.holds]
    said = []
    for kind in dict.fromkeys(one.certificate.kind for one in held):
        said.append(_holding([one for one in held if one.certificate.kind == kind], layers))
    if failed:
        said.append(_failing(failed, layers, alone=not held))
    measured = _measured(failed) if not held else ""
    if measured:
        said.append(f"Slowest contraction measured at {counted(looked_at, 'step')} of the data: {measured}.")
    return " ".join(said)


def _holding(held: list[JudgedCertificate], layers: set[int]) -> str:
    kind = held[0].certificate.kind
    rates = [one.certificate.rate for one in held if one.certificate.rate is not None]
    measured = [one.measured for one in held if one.measured is not None]
    at = f" at rate {_listed(rates)} per {_unit(kind)}" if rates else ""
    seen = f" (slowest measured {_listed(measured)})" if measured else ""
    return f"The {NAMES[kind]} certificate holds{_where(held, layers)}{at}{seen}."


def _failing(failed: list[JudgedCertificate], layers: set[int], *, alone: bool) -> str:
    """Give each reason once, with the certificates and layers it is true of; conditions with all their values."""
    groups: dict[str, list[JudgedCertificate]] = {}
    for one in failed:
        groups.setdefault(_cause(one), []).append(one)
    reasons = []
    for cause, group in groups.items():
        names = " and ".join(dict.fromkeys(NAMES[one.certificate.kind] for one in group))
        values = list(dict.fromkeys(value for one in group if (value := _value(one))))
        shown = values if len(values) <= MOST_LISTED else [*values[: MOST_LISTED - 1], "…"]
        why = f"{cause} fails ({', '.join(shown)})" if values else cause
        reasons.append(why if alone and len(groups) == 1 else f"{names}{_where(group, layers)}: {why}")
    head = "No certificate applies" if alone else "Not applicable"
    return f"{head}: {'; '.join(reasons)}."


def _cause(one: JudgedCertificate) -> str:
    found = _REASON.fullmatch(one.certificate.reason)
    if found is None:
        return one.certificate.reason.removeprefix("not applicable: ")
    clause = _CLAUSE.fullmatch(found["value"])
    return found["value"] if clause else found["condition"]


def _value(one: JudgedCertificate) -> str:
    found = _REASON.fullmatch(one.certificate.reason)
    if found is None or _CLAUSE.fullmatch(found["value"]):
        return ""
    return found["value"] + found["rest"]


def _measured(judged: list[JudgedCertificate]) -> str:
    least: dict[str, float] = {}
    for one in judged:
        if one.measured is not None:
            unit = _unit(one.certificate.kind)
            least[unit] = min(one.measured, least.get(unit, one.measured))
    said = ", ".join(f"{number(value)} per {unit}" for unit, value in least.items())
    return f"{said} (below 0 nearby states part)" if min(least.values(), default=0.0) < 0 else said


def _where(group: list[JudgedCertificate], layers: set[int]) -> str:
    own = sorted({one.layer for one in group})
    if len(layers) == 1:
        return ""
    if len(own) == len(layers):
        return " in every layer"
    return f" in layer{'s' if len(own) > 1 else ''} {' and '.join(str(layer + 1) for layer in own)}"


def _listed(values: list[float]) -> str:
    if len(values) <= MOST_LISTED:
        return ", ".join(number(value) for value in values)
    return f"{number(min(values))} to {number(max(values))}"


def _unit(kind: str) -> str:
    return "step" if kind == "discrete" else "unit of time"
