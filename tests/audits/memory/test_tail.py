import numpy as np
import pytest

from sostenuto.audits.memory.tail import fit_tail

CASES = 20


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
    assert right_kind >= 0.95 * CASES
    assert right_rate >= 0.93 * CASES


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
