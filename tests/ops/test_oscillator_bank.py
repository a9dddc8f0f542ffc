import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sostenuto.checks import InputError
from sostenuto.ops.oscillator_bank import (
    _DISTINCT,
    LANES,
    THRESHOLDS,
    BankStream,
    OscillatorBank,
    bank_outputs,
    bank_shares,
)
from sostenuto.ops.oscillator_bank.bank import small_bank

LENGTHS = (1, 2, 63, 30)
BORDERS = torch.tensor([0, *np.cumsum(LENGTHS)])


def problem(channels=1, units=150, spans=None):
    generator = torch.Generator().manual_seed(channels)
    values = torch.randn(int(BORDERS[-1]), channels, generator=generator, dtype=torch.float64)
    drawn = None
    if spans == "integers":
        drawn = torch.randint(1, 4, (len(values),), generator=generator).double()
    elif spans == "reals":
        drawn = 0.2 + torch.rand(len(values), generator=generator, dtype=torch.float64)
    return values, small_bank(units, channels), drawn


def plain_outputs(values, spans, bank, unit):
    """The recurrence of one unit of one sequence once more, as a loop over numbers."""
    block, k = unit // LANES, bank.mix.shape[1]
    rate, second = (complex(*pair[unit].tolist()) for pair in (bank.rate, bank.second_rate))
    lam, mu, phase = np.exp(rate), np.exp(second), np.exp(1j * float(bank.phase[unit]))
    kind, order = int(bank.kind[block]), int(bank.order[block])
    gains = {0: 1 - abs(lam), 1: (1 - abs(lam)) * (1 - abs(mu)), 2: 1 - abs(mu)}
    s = v = 0j
    slope = last = np.zeros(values.shape[1])
    outputs = []
    for t, (x, span) in enumerate(zip(values, spans, strict=True)):
        rise = (x - last) / span if t > 0 else 0 * x
        bend = (rise - slope) / span if t > 1 else 0 * x
        last, slope = x, rise
        drive = (x, rise, bend)[order]
        u = sum(float(bank.mix[unit, c]) * drive[int(bank.channels[block, c])] for c in range(k))
        s = lam**span * s + (lam**span - 1) / (lam - 1) * u
        entering = s if kind == 1 else abs(s) * (1 - abs(lam))
        v = mu**span * v + (mu**span - 1) / (mu - 1) * entering
        outputs.append((phase * (s if kind == 0 else v)).real * gains[kind])
    return np.array(outputs)


@pytest.mark.parametrize("spans", [None, "integers", "reals"])
@pytest.mark.parametrize("channels", [1, 5])
def test_the_reference_is_the_recurrence_written_as_a_loop(channels, spans):
    values, bank, drawn = problem(channels, 9 * LANES, spans)
    steps = torch.ones(len(values), dtype=torch.float64) if drawn is None else drawn
    outputs = bank_outputs(values, BORDERS, bank, spans=drawn, backend="reference")
    part = slice(int(BORDERS[2]), int(BORDERS[3]))
    for unit in range(0, bank.n_units, 7):
        expected = plain_outputs(values[part].numpy(), steps[part].numpy(), bank, unit)
        np.testing.assert_allclose(outputs[part, unit], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spans", [None, "integers", "reals"])
@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("units", [1, 16, 150])
def test_the_compiled_outputs_are_those_of_the_reference(channels, units, spans):
    values, bank, drawn = problem(channels, units, spans)
    expected = bank_outputs(values, BORDERS, bank, spans=drawn, backend="reference")
    got = bank_outputs(values.float(), BORDERS, bank, spans=drawn, backend="cpu")
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=1e-6 * float(expected.abs().max()))


def between(bank, values, spans):
    """Put thresholds midway between outputs, so that rounding cannot decide a comparison."""
    ordered = bank_outputs(values, BORDERS, bank, spans=spans, backend="reference").sort(0).values
    places = torch.linspace(0, len(ordered) - 2, THRESHOLDS).long()
    gaps = ordered[1:] - ordered[:-1]
    wide = torch.where(gaps > 1e-4 * (1 + ordered[1:].abs()), gaps, 0.0)
    nearest = (wide > 0).float().cumsum(0).argmax(0)
    middle = (ordered[places] + ordered[places + 1]) / 2
    safe = torch.where(wide[places] > 0, middle, ordered.gather(0, nearest[None]) + 1e6)
    return OscillatorBank(**{**vars(bank), "thresholds": safe.T.contiguous()})


@pytest.mark.parametrize("spans", [None, "integers", "reals"])
@pytest.mark.parametrize("channels", [1, 5])
def test_the_compiled_shares_are_those_of_the_reference(channels, spans):
    values, bank, drawn = problem(channels, 150, spans)
    bank = between(bank, values, drawn)
    expected = bank_shares(values, BORDERS, bank, spans=drawn, backend="reference")
    assert 0.2 < float(expected.mean()) < 0.8
    got = bank_shares(values.float(), BORDERS, bank, spans=drawn, backend="cpu")
    assert got.shape == (len(LENGTHS), THRESHOLDS, 150)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("spans", [None, "reals"])
def test_a_stream_gives_the_numbers_of_the_whole(spans):
    values, bank, drawn = problem(3, 100, spans)
    whole = bank_shares(values, BORDERS, bank, spans=drawn)
    for n, (low, high) in enumerate(zip(BORDERS[:-1].tolist(), BORDERS[1:].tolist(), strict=True)):
        stream = BankStream(bank)
        for t in range(low, high):
            stream.push(values[t : t + 1], None if drawn is None else drawn[t : t + 1])
        torch.testing.assert_close(stream.shares(), whole[n], rtol=0, atol=1e-6)


def test_more_distinct_spans_than_are_kept_at_a_time_change_nothing():
    generator = torch.Generator().manual_seed(0)
    lengths = [_DISTINCT + 500, 40, 3000, 1]
    borders = torch.tensor([0, *np.cumsum(lengths)])
    values = torch.randn(int(borders[-1]), 2, generator=generator)
    spans = 0.5 + torch.rand(len(values), generator=generator)
    bank = small_bank(40, 2)
    got = bank_shares(values, borders, bank, spans=spans)
    for n in range(len(lengths)):
        part = slice(int(borders[n]), int(borders[n + 1]))
        stream = BankStream(bank)
        stream.push(values[part], spans[part])
        torch.testing.assert_close(got[n], stream.shares(), rtol=0, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 400), st.floats(1e-3, 1e3))
def test_a_constant_input_settles_where_the_closed_form_says(length, size):
    """A single oscillator tends to Re(p / (1 − λ)) per unit of input, whatever the spans: it is exact for each."""
    bank = small_bank(LANES)
    bank = OscillatorBank(**{**vars(bank), "order": torch.zeros(1, dtype=torch.int64)})
    spans = torch.full((length,), 4000.0 / length)
    outputs = bank_outputs(torch.full((length, 1), size), torch.tensor([0, length]), bank, spans=spans)
    lam = torch.exp(torch.view_as_complex(bank.rate))
    readout = bank.readout()
    settled = (torch.complex(readout[:, 0], -readout[:, 1]) / (1 - lam)).real * size * bank.mix[:, 0]
    torch.testing.assert_close(outputs[-1].double(), settled, rtol=2e-5, atol=2e-5 * size)


def test_shares_are_of_time_and_do_not_depend_on_how_sequences_are_batched():
    values, bank, _ = problem(1, 64)
    together = bank_shares(values, BORDERS, bank)
    assert bool((together >= 0).all())
    assert bool((together <= 1).all())
    for n in range(len(LENGTHS)):
        part = values[int(BORDERS[n]) : int(BORDERS[n + 1])]
        torch.testing.assert_close(
            bank_shares(part, torch.tensor([0, len(part)]), bank)[0], together[n], rtol=0, atol=0
        )


def test_what_cannot_be_read_is_refused():
    values, bank, _ = problem(1)
    with pytest.raises(InputError, match="expected borders from 0 to 96 of sequences with at least one step"):
        bank_shares(values, torch.tensor([0, 5, 5, 96]), bank)
    with pytest.raises(InputError, match="expected spans above 0"):
        bank_shares(values, BORDERS, bank, spans=torch.zeros(96))
    with pytest.raises(InputError, match="expected at least 3 channels for this bank, got 1"):
        bank_shares(values, BORDERS, small_bank(500, 3))
    with pytest.raises(InputError, match="expected at least one step before its shares"):
        BankStream(bank).shares()
    with pytest.raises(InputError, match="expected damped oscillators"):
        OscillatorBank(**{**vars(bank), "rate": -bank.rate})
