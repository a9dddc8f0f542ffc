import numpy as np
import pytest
from scipy.special import j0

from sostenuto.audits.memory.tail import fit_tail

CASES = 10


def functional(generator, family, steps):
    """Draw a linear functional (lag, channel), and the law and rate its tail must show."""
    time = np.arange(steps + 1.0)[:, None]
    channels = int(generator.integers(1, 5))

    def coefficients():
        return generator.normal(size=(1, channels))

    decays = np.exp(generator.uniform(np.log(3 / steps), np.log(0.7), size=3))
    powers = generator.uniform(1.1, 3.0, size=2)
    if family == "exponential":
        return coefficients() * np.exp(-decays[0] * time), "exponential", decays[0]
    if family == "polynomial":
        return coefficients() * (time + 1) ** -powers[0], "polynomial", powers[0]
    if family == "exponentials":
        return sum(coefficients() * np.exp(-decay * time) for decay in decays), "exponential", decays.min()
    if family == "polynomials":
        return sum(coefficients() * (time + 1) ** -power for power in powers), "polynomial", powers.min()
    mixed = coefficients() * (time + 1) ** -powers[0] + coefficients() * np.exp(-generator.uniform(0.05, 0.7) * time)
    return mixed, "polynomial", powers[0]


def test_the_law_and_its_rate_are_found():
    generator = np.random.default_rng(7)
    families = ("exponential", "polynomial", "exponentials", "polynomials", "mixed")
    right_kind, right_rate = 0, 0
    for case in range(CASES):
        steps = int(generator.choice([100, 150]))
        signal, kind, rate = functional(generator, families[case % len(families)], steps)
        noise = 1e-7 * np.abs(signal).max()
        signal = signal + noise * generator.uniform(-1, 1, signal.shape)
        found = fit_tail(np.arange(steps + 1.0), signal, noise=10 * noise)
        right_kind += found.kind == kind
        right_rate += found.kind == kind and abs(found.rate / rate - 1) <= 0.05
    assert right_kind >= 0.9 * CASES
    assert right_rate >= 0.9 * CASES


LAWS = {
    "exponential": lambda t: 0.9**t,
    "polynomial": lambda t: (t + 1) ** -1.5,
    "stretched": lambda t: np.exp(-np.sqrt(t)),
    "finite": lambda t: (t < 30) / 30,
}


@pytest.mark.parametrize("size", [1e-7, 1e-6])
@pytest.mark.parametrize("name", LAWS)
def test_rounding_never_turns_one_law_into_another(name, size):
    generator, time = np.random.default_rng(3), np.arange(200.0)
    signal = LAWS[name](time)[:, None] * np.array([1, -0.5]) + size * generator.standard_normal((200, 2))
    assert fit_tail(time, signal, noise=4 * size).kind in (name, "no law")


def test_an_oscillation_that_dies_out_is_exponential():
    time = np.arange(300.0)[:, None]
    found = fit_tail(time[:, 0], np.exp(-0.02 * time) * np.cos(0.4 * time + 1), noise=1e-9)
    assert found.kind == "exponential"
    assert found.rate == pytest.approx(0.02, rel=0.01)


def test_an_oscillation_that_stays_is_periodic():
    time = np.arange(300.0)[:, None]
    found = fit_tail(time[:, 0], np.sin(2 * np.pi * time / 24), noise=1e-9)
    assert found.kind == "periodic"
    assert found.period == 12  # of its size


@pytest.mark.parametrize("signal", [np.ones(100), np.linspace(1, 2, 100), np.exp(0.01 * np.arange(100))])
def test_what_stays_or_grows_does_not_decay(signal):
    found = fit_tail(np.arange(100.0), signal[:, None], noise=1e-9)
    assert found.kind == "non-decaying"
    assert found.rate is None


def test_what_ends_is_finite():
    signal = np.zeros((50, 2))
    signal[:3] = 1.0
    found = fit_tail(np.arange(50.0), signal, noise=1e-9)
    assert (found.kind, found.last_lag) == ("finite", 2)


def test_silence_is_finite_too():
    assert fit_tail(np.arange(50.0), np.zeros((50, 1)), noise=0.0).kind == "finite"


def law_cases(steps):
    """Tails of known law: responses, kind, rate, period."""
    time = np.arange(steps + 1.0)
    return {
        "FIR": (np.where(time < 20, np.random.default_rng(3).normal(size=len(time)), 0), "finite", None, None),
        "short FIR": (np.where(time < 20, 0.8**time, 0), "finite", None, None),
        "moving average": ((time < 30) / 30, "finite", None, None),
        "Hann window": (np.where(time < 30, np.sin(np.pi * (time + 0.5) / 30) ** 2, 0), "finite", None, None),
        "delay line": ((time == 30).astype(float), "finite", None, None),
        "Bessel": (j0(time), "polynomial", 0.5, 2 * np.pi),
        "wave in a power": (np.cos(0.3 * time) / (1 + time), "polynomial", 1.0, 2 * np.pi / 0.3),
        "power": ((time + 1) ** -1.1, "polynomial", 1.1, None),
        "square root": (np.exp(-np.sqrt(time)), "stretched", 1.0, None),
        "Gauss": (np.exp(-((time / 20) ** 2)), "stretched", 0.05, None),
        "exponential": (0.9**time, "exponential", -np.log(0.9), None),
        "two waves": (
            np.exp(-0.05 * time) * np.cos(0.4 * time + 1) + 0.5 * np.exp(-0.03 * time) * np.cos(1.3 * time),
            "exponential",
            0.03,
            2 * np.pi / 1.3,
        ),
        "alternating": ((-0.8) ** time, "exponential", -np.log(0.8), 2.0),
        "noise that fades": (np.random.default_rng(1).normal(size=len(time)) * 0.9**time, "no law", None, None),
    }


@pytest.mark.parametrize(("steps", "seed"), [(60, 0), (150, 1), (300, 2)])
@pytest.mark.parametrize("name", law_cases(60))
def test_a_law_is_right_or_none_is_told(name, steps, seed):
    responses, kind, rate, period = law_cases(steps)[name]
    rounding = 1e-9 * np.random.default_rng(seed).uniform(-1, 1, len(responses))
    found = fit_tail(np.arange(steps + 1.0), (responses + rounding)[:, None], noise=1e-8)
    assert found.kind in (kind, "no law")
    if steps == 150:
        assert found.kind == kind
    if found.kind == kind and rate is not None:
        assert found.rate == pytest.approx(rate, rel=0.02)
        assert found.period == (None if period is None else pytest.approx(period, rel=0.01))


def test_a_decay_to_a_floor_says_so():
    time = np.arange(200.0)
    found = fit_tail(time, (0.5**time + 1e-3)[:, None], noise=1e-12)
    assert (found.kind, found.floor) == ("exponential", pytest.approx(1e-3, rel=0.01))
    assert found.rate == pytest.approx(np.log(2), rel=0.01)
    noise = 1e-3 * np.random.default_rng(0).normal(size=(600, 1))
    found = fit_tail(np.arange(600.0), 0.9 ** np.arange(600.0)[:, None] + noise, noise=1e-12)
    assert found.kind in ("exponential", "no law")
    assert found.floor == pytest.approx(3e-3, rel=0.5)


def test_noise_is_no_decay():
    for seed in range(3):
        found = fit_tail(np.arange(200.0), np.random.default_rng(seed).normal(size=(200, 2)), noise=1e-9)
        assert found.kind in ("non-decaying", "no law")
