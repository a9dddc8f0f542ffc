# ruff: noqa: N803, N806 (X is the name of the contract)

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import sostenuto as so
from sostenuto.audits import noise_accuracy
from sostenuto.audits.batches import classification_batch
from sostenuto.audits.robustness.corruptions import CORRUPTIONS
from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier
from tests.laws.audit_laws import Answering, AuditLaws


class TestGaussianNoise(AuditLaws):
    def ask(self, model, X, y, **options):
        return noise_accuracy(model, X, y, **options)


class TestSaltAndPepper(AuditLaws):
    def ask(self, model, X, y, **options):
        return noise_accuracy(model, X, y, kind="salt-and-pepper", levels=(0.0, 0.3, 1.0), repeats=2, **options)


def signs(count=2000, steps=3):
    """Sequences that are +1 or −1 throughout, and the class that says which."""
    values = torch.ones(count, steps, 1)
    values[::2] = -1.0
    return values, (values[:, 0, 0] > 0).long()


def last_sign(x):
    return torch.cat([-x[:, -1], x[:, -1]], dim=-1)


def every_sign(x):
    return torch.cat([-x, x], dim=-1)


def normal_share(z):
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_gaussian_accuracy_is_the_normal_distributions(scale):
    X, y = signs()
    result = noise_accuracy(Answering(last_sign), scale * X, y, levels=(0, 0.5, 1, 2), repeats=5)
    for level, accuracy, deviation in zip(result.levels[1:], result.score[1:], result.deviation[1:], strict=True):
        share = normal_share(1 / level)
        error = math.sqrt(share * (1 - share) / 2000)
        assert accuracy == pytest.approx(share, abs=4 * error / math.sqrt(5))
        assert 0.1 * error < deviation < 3 * error
    assert (result.clean_score, result.score[0], result.deviation[0]) == (1.0, 1.0, 0.0)
    assert (result.guess, result.count, result.repeats) == (0.5, 2000, 3 + 2)


def test_salt_and_pepper_accuracy_is_one_minus_half_the_share():
    X, y = signs()
    levels = (0.0, 0.1, 0.5, 1.0)
    result = noise_accuracy(Answering(last_sign), X, y, levels=levels, kind="salt-and-pepper", repeats=5)
    for level, accuracy in zip(levels, result.score, strict=True):
        assert accuracy == pytest.approx(1 - level / 2, abs=4 * math.sqrt(0.25 / 10000))


def test_each_channel_has_its_own_unit_and_a_constant_one_no_noise():
    seen = []

    def watch(x):
        seen.append(x)
        return last_sign(x[:, :, :1])

    X, y = signs()
    X = torch.cat([X, 50 * X + 3, torch.full_like(X, 7.0)], dim=2)
    noise_accuracy(Answering(watch), X, y, levels=(0.5,), batch_size=4000)
    moved = (seen[1] - X).flatten(0, 1)
    assert moved.std(0).tolist() == pytest.approx([0.5, 25.0, 0.0], rel=0.05)
    assert not moved[:, 2].any()


def test_salt_and_pepper_takes_the_extremes_of_the_channel():
    seen = []

    def watch(x):
        seen.append(x)
        return last_sign(x[:, :, :1])

    X = torch.randn(50, 4, 2) * torch.tensor([1.0, 10.0])
    noise_accuracy(Answering(watch), X, torch.arange(50) % 2, levels=(1.0,), kind="salt-and-pepper")
    for channel in range(2):
        assert set(seen[1][..., channel].unique().tolist()) == {
            X[..., channel].min().item(),
            X[..., channel].max().item(),
        }


@pytest.mark.parametrize("kind", ["gaussian", "salt-and-pepper", "missing", "shift"])
def test_the_batch_size_changes_nothing(kind):
    X, y = signs(101)
    results = [
        noise_accuracy(Answering(last_sign), X, y, levels=(0.5, 0.9), kind=kind, batch_size=size)
        for size in (1, 7, 101, 500)
    ]
    assert len({(result.score, result.deviation) for result in results}) == 1


def test_another_seed_draws_other_noise_and_levels_keep_their_order():
    X, y = signs(200)
    one, other = (noise_accuracy(Answering(last_sign), X, y, levels=(1.0, 0.0, 0.5), seed=seed) for seed in (0, 1))
    assert one.score != other.score
    assert one.levels == (1.0, 0.0, 0.5)
    assert one.score[1] == 1.0 > one.score[2] > one.score[0]


@pytest.mark.parametrize("filling", [-7.0, float("nan")])
@pytest.mark.parametrize("kind", ["gaussian", "salt-and-pepper"])
def test_padding_stays_as_it_is(kind, filling):
    X, y = signs(40, steps=5)
    lengths = 1 + torch.arange(40) % 5
    padding = torch.arange(5) >= lengths[:, None]
    X[padding] = filling
    seen = []

    def watch(x):
        seen.append(x)
        return torch.randn(len(x), 2)

    noise_accuracy(Answering(watch), X, y, kind=kind, levels=(0.0, 1.0), lengths=lengths)
    for values in seen:
        torch.testing.assert_close(values[padding], X[padding], equal_nan=True)
    assert not torch.equal(seen[-1][~padding], X[~padding])


def test_padding_does_not_enter_the_unit_of_the_noise():
    X, y = signs(400, steps=4)
    X[:, 2:] = 1e6
    shorter = noise_accuracy(Answering(lambda x: last_sign(x[:, :2])), X, y, levels=(1.0,), lengths=[2] * 400)
    assert shorter.score[0] == pytest.approx(normal_share(1), abs=0.05)


class WithLengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x, lengths=None):
        self.seen.append(None if lengths is None else lengths.tolist())
        last = x[torch.arange(len(x)), (x.shape[1] if lengths is None else lengths) - 1]
        return torch.cat([-last, last], dim=-1)


def test_unequal_lengths_reach_a_model_that_takes_them():
    X, y = signs(10, steps=5)
    ragged = [x[: 1 + index % 5] for index, x in enumerate(X)]
    model = WithLengths()
    result = noise_accuracy(model, ragged, y, levels=(0.0, 0.01), batch_size=5)
    assert result.score == (1.0, 1.0)
    assert model.seen[0] == [1, 2, 3, 4, 5]
    whole = WithLengths()
    noise_accuracy(whole, X, y, levels=(0.0,))
    assert whole.seen == [None]


def test_unequal_lengths_are_refused_for_a_model_that_cannot_know_them():
    X, y = signs(4)
    with pytest.raises(
        InputError, match="forward takes lengths, as the sequences are of unequal length, got Answering"
    ):
        noise_accuracy(Answering(last_sign), [X[0], X[1, :2], X[2], X[3]], y)


def test_scores_at_every_step_answer_at_the_last_true_step():
    X, y = signs(20, steps=4)
    X[:, 2:] *= -1
    late = noise_accuracy(Answering(every_sign), X, y, levels=(0,))
    early = noise_accuracy(Answering(every_sign), X, y, levels=(0,), lengths=np.full(20, 2))
    assert (late.clean_score, early.clean_score) == (0.0, 1.0)


def test_classes_at_every_step_are_counted_at_true_steps():
    X, y = signs(20, steps=4)
    targets = y[:, None].repeat(1, 4)
    targets[:, 3] = -1
    X[:, 2:] *= -1
    result = noise_accuracy(Answering(every_sign), X, targets, levels=(0,), lengths=[3] * 20)
    assert result.count == 60
    assert result.clean_score == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="expected scores at every step"):
        noise_accuracy(Answering(last_sign), X, y[:, None].repeat(1, 4))


def test_answers_that_are_not_numbers_are_wrong_and_told():
    X, y = signs(100)

    def overflow(x):
        return last_sign(x) * torch.where(x[:, -1].abs() > 1.5, torch.nan, 1.0)

    result = noise_accuracy(Answering(overflow), X, y, levels=(0, 1))
    assert result.undefined[0] == 0
    assert 0 < result.undefined[1] <= 1 - result.score[1]
    assert "were not a number and count as wrong" in result.summary()


def test_two_axes_are_one_channel():
    X, y = signs(30)
    model = Answering(last_sign)
    assert noise_accuracy(model, X[:, :, 0], y) == noise_accuracy(model, X, y)


def test_the_summary_reads_well():
    X, y = signs()
    measured = noise_accuracy(Answering(last_sign), X, y, levels=(0, 0.5))
    gaussian = replace(measured, score=(1.0, 0.9778), deviation=(0.0, 0.0031))
    assert gaussian.summary().replace("\u202f", " ") == (
        "The accuracy is 100 % on the data as they are and 97.8 % (± 0.3 points over 3 draws) with Gaussian noise of "
        "0.5 standard deviations of each channel; always answering the most frequent class gives 50.0 %."
    )
    pepper = noise_accuracy(Answering(last_sign), X, y, levels=(0.2,), kind="salt-and-pepper").summary()
    assert "with 20.0\u202f% of the samples replaced by the extremes of their channel" in pepper
    still = noise_accuracy(Answering(last_sign), X, y, levels=(0,)).summary()
    assert still.startswith("The accuracy is 100\u202f% on the data as they are; always")


def test_one_of_our_own_models_and_one_in_bfloat16():
    X, y = torch.randn(12, 9, 2), torch.arange(12) % 3
    model = SequenceClassifier(so.nn.UnICORNN(2, 8, batch_first=True), num_classes=3)
    ragged = [x[: 3 + index % 5].numpy() for index, x in enumerate(X)]
    assert noise_accuracy(model, ragged, y).count == 12
    small = nn.Sequential(nn.Flatten(), nn.Linear(18, 3)).bfloat16()
    assert "bfloat16" in noise_accuracy(small, X, y).method


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "pink"}, "expected kind to be one of 'gaussian', 'salt-and-pepper', 'missing', 'shift', got 'pink'"),
        ({"levels": ()}, "expected at least one noise level, got none"),
        ({"levels": (0.1, -0.5)}, "expected finite levels of at least 0, got 0.1, -0.5"),
        ({"levels": (float("nan"),)}, "expected finite levels"),
        ({"levels": (float("inf"),)}, "expected finite levels"),
        ({"levels": (0.5, 1.5), "kind": "salt-and-pepper"}, "expected finite levels from 0 to 1, got 0.5, 1.5"),
        ({"repeats": 1}, "expected repeats to be a whole number of at least 2, got 1"),
        ({"seed": -1}, "seed"),
        ({"batch_size": 0}, "batch_size"),
        ({"lengths": [3, 3]}, r"expected 6 lengths, one per sequence, got shape \(2,\)"),
        ({"lengths": [4] * 6}, "expected lengths from 1 to 3, got 4 to 4"),
        ({"lengths": [0.5] * 6}, "expected whole numbers in lengths, got torch.float64"),
        ({"y": [0, 1]}, r"expected y of shape \(6,\), or \(6, 3\) for a class at every step, got \(2,\)"),
        ({"y": [0.5j, 1.0] * 3}, "expected class indices in y"),
        ({"y": [0, -1] * 3}, "expected class indices of at least 0 in y, got -1"),
        ({"y": [0, 2] * 3}, "expected classes from 0 to 1 in y, as the model has 2 scores, got 2"),
        ({"model": Answering(lambda x: x[:, -1])}, "expected scores of at least 2 classes from the model, got 1"),
    ],
)
def test_bad_options_are_refused(options, message):
    X, y = signs(6)
    given = {"model": Answering(last_sign), "X": X, "y": y, **options}
    with pytest.raises(InputError, match=message):
        noise_accuracy(given.pop("model"), given.pop("X"), given.pop("y"), **given)


def test_a_list_takes_no_lengths():
    X, y = signs(3)
    with pytest.raises(
        InputError, match=r"expected a padded array .* beside lengths, got list; a list needs no lengths"
    ):
        noise_accuracy(Answering(last_sign), list(X), y, lengths=[3, 3, 3])


def test_matplotlib_is_not_needed_to_measure():
    program = (
        "import sys, torch, sostenuto as so; so.audits.noise_accuracy(torch.nn.Sequential(torch.nn.Flatten(), "
        "torch.nn.Linear(4, 2)), torch.randn(6, 4), [0, 1] * 3); print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_names_are_listed():
    assert "noise_accuracy" in dir(so.audits)
    with pytest.raises(AttributeError, match=r"public names are: .*AuditResult"):
        _ = so.audits.horoscope


def test_lost_steps_hold_the_value_before():
    data = classification_batch(Answering(lambda x: x), torch.arange(12.0).reshape(2, 6, 1), [0, 1])
    damage = CORRUPTIONS["missing"](data)
    drawn = torch.tensor([[0.1, 0.9, 0.1, 0.1, 0.9, 0.2], [0.9] * 6])[:, :, None]
    found = damage.apply(data.values, drawn, 0.5, torch.tensor([6, 6]))
    assert found[0, :, 0].tolist() == [0, 1, 1, 1, 4, 4]
    assert torch.equal(found[1], data.values[1])


def test_shifts_stay_within_each_sequence():
    data = classification_batch(Answering(lambda x: x), torch.arange(12.0).reshape(2, 6, 1), [0, 1])
    damage = CORRUPTIONS["shift"](data)
    found = damage.apply(data.values, torch.tensor([1.0, -1.0])[:, None, None], 0.5, torch.tensor([6, 4]))
    assert found[0, :, 0].tolist() == [0, 0, 0, 0, 1, 2]
    assert found[1, :4, 0].tolist() == [8, 9, 9, 9]


@pytest.mark.parametrize("kind", ["missing", "shift"])
def test_damage_grows_with_its_level(kind):
    torch.manual_seed(0)
    x = torch.randn(200, 12, 1)
    found = noise_accuracy(
        Answering(lambda x: torch.cat([-x[:, 5], x[:, 5]], -1)),
        x,
        (x[:, 5, 0] > 0).long(),
        levels=(0, 0.3, 1),
        kind=kind,
    )
    assert found.score[0] == 1.0 > found.score[1] > found.score[2]
    assert found.summary().endswith("%.")


def test_an_audit_asks_about_every_sequence_under_noise():
    X = 2 * torch.rand(800, 4, 1, generator=torch.Generator().manual_seed(0)) - 1
    X = X + 0.05 * X.sign()
    report = so.audit(Answering(last_sign), X, (X[:, -1, 0] > 0).long(), checks="noise", progress=False)
    assert report.noise.count == 800
    assert report.verdicts["noise"].label == "Steady"  # 2.5 % is lost, which 128 sequences could not tell from 5 %
