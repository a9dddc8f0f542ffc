import struct

import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.data.batch import SequenceBatch
from sostenuto.data.sources.noise_padding import NoisePadding, sequence_keys


def batch(count: int = 4, steps: int = 32, channels: int = 96) -> SequenceBatch:
    values = torch.rand(count, steps, channels, generator=torch.Generator().manual_seed(1))
    return SequenceBatch(values, torch.full((count,), steps), targets=torch.arange(count))


def test_the_signal_comes_first_and_noise_follows():
    padded = NoisePadding(1000)(batch())
    assert padded.values.shape == (4, 1000, 96)
    assert torch.equal(padded.values[:, :32], batch().values)
    assert padded.lengths.tolist() == [1000] * 4
    assert torch.equal(padded.targets, torch.arange(4))


def test_the_noise_is_standard_normal():
    noise = NoisePadding(1000)(batch(8)).values[:, 32:].double().flatten()
    count = noise.numel()
    assert abs(noise.mean()) < 4 / count**0.5
    assert abs(noise.var() - 1) < 4 * (2 / count) ** 0.5
    assert abs((noise**3).mean()) < 4 * (15 / count) ** 0.5
    assert abs((noise**4).mean() - 3) < 4 * (96 / count) ** 0.5
    expected = torch.special.ndtr(torch.linspace(-3, 3, 13).double())
    found = torch.stack([(noise < level).double().mean() for level in torch.linspace(-3, 3, 13).double()])
    assert (found - expected).abs().max() < 4 * 0.5 / count**0.5


def test_every_image_and_every_step_has_noise_of_its_own():
    noise = NoisePadding(1000)(batch(6)).values[:, 32:].double()
    images = torch.corrcoef(noise.flatten(1)) - torch.eye(6)
    assert images.abs().max() < 5 / (968 * 96) ** 0.5
    steps = (noise[:, 1:] * noise[:, :-1]).mean()
    channels = (noise[..., 1:] * noise[..., :-1]).mean()
    assert max(abs(steps), abs(channels)) < 5 / noise.numel() ** 0.5
    halves = (noise[:, :484] * noise[:, 484:]).mean()
    assert abs(halves) < 5 / (noise.numel() / 2) ** 0.5


def test_the_noise_of_an_image_does_not_depend_on_its_batch():
    whole, padding = batch(5), NoisePadding(100, seed=2**40 + 7)
    alone = padding(whole.select([3]))
    turned = padding(whole.select([4, 3, 2, 1, 0]))
    expected = padding(whole).values
    assert torch.equal(alone.values[0], expected[3])
    assert torch.equal(turned.values, expected.flip(0))


def test_seeds_and_the_smallest_change_of_an_image_change_the_noise():
    whole = batch(2)
    first, second = (NoisePadding(100, seed=seed)(whole).values[:, 32:] for seed in (0, 1))
    assert (first == second).float().mean() < 0.01
    values = whole.values.clone()
    values[0, 0, 0] = torch.nextafter(values[0, 0, 0], torch.tensor(2.0))
    changed = NoisePadding(100)(SequenceBatch(values, whole.lengths)).values[:, 32:]
    assert (changed[0] == first[0]).float().mean() < 0.01
    assert torch.equal(changed[1], first[1])


def splitmix64(word: int) -> int:
    word %= 2**64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


@pytest.mark.parametrize("seed", [0, 7, -1, 2**31])
def test_keys_are_the_same_sum_in_whole_numbers(seed):
    assert splitmix64(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF  # the published first output for seed 0
    values = torch.tensor([[[0.25, -1.5], [1e-30, 3e8]]])
    weights = [splitmix64(place + (seed % 2**32) * 2**30) | 1 for place in range(5)]
    bits = struct.unpack("<4i", struct.pack("<4f", *values.flatten().tolist()))
    expected = splitmix64(sum(bit * weight for bit, weight in zip(bits, weights[1:], strict=True)) + weights[0])
    assert sequence_keys(values, seed).item() % 2**64 == expected


def test_keys_do_not_repeat():
    values = torch.zeros(5000, 4, 3)
    values.view(5000, 12)[torch.arange(5000), torch.arange(5000) % 12] = torch.arange(5000) / 255
    keys = torch.cat([sequence_keys(values, seed) for seed in (0, 1)])
    assert len((keys % 2**32).unique()) >= len(values.unique(dim=0)) * 2 - 1


def test_it_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    NoisePadding(40)(batch())
    assert torch.equal(torch.rand(1), expected)


def test_other_types_timespans_and_full_length():
    double = SequenceBatch(batch().values.double(), batch().lengths, timespans=torch.full((4, 32), 2.0))
    padded = NoisePadding(33)(double)
    assert padded.values.dtype == torch.float64
    assert padded.timespans is not None
    assert padded.timespans[0].tolist() == [2.0] * 32 + [1.0]
    assert torch.equal(NoisePadding(32)(batch()).values, batch().values)


def test_what_cannot_be_padded_is_refused():
    with pytest.raises(InputError, match="expected at most 31 steps to pad, got 32"):
        NoisePadding(31)(batch())
    ragged = SequenceBatch(batch().values, torch.tensor([32, 31, 32, 32]))
    with pytest.raises(InputError, match="one length"):
        NoisePadding(100)(ragged)
    with pytest.raises(InputError, match=r"expected \(batch, time, channel\)"):
        NoisePadding(100)(SequenceBatch(torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 3])))
