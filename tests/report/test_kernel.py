"""The section on a kernel: its pictures, numbers and advice."""

import numpy as np
import pytest

from sostenuto.report.contents.kernel import (
    directions_for,
    effective_rank,
    eigenvalue_decay,
    gram_picture,
    kernel_section,
    sensitivity_curves,
)
from sostenuto.report.page import render
from sostenuto.results import KernelSummary
from tests.report import samples
from tests.report.html_check import Page


def summary(**changed):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(30, 4)) + 2 * (np.arange(30) // 15)[:, None]
    matrix = features @ features.T
    unit = np.sqrt(np.diag(matrix))
    steps = np.linspace(0, 1, 20)
    return KernelSummary(
        **{
            "kernel": "RecurrentNTK(sigma_w=1.41)",
            "picture": tuple(map(tuple, (matrix / np.outer(unit, unit)).tolist())),
            "groups": (0,) * 15 + (1,) * 15,
            "eigenvalues": tuple(np.clip(np.linalg.eigvalsh(matrix)[::-1], 0, None).tolist()),
            "alignment": 0.61,
            "sigma_w": 1.41,
            "sigmas": (1.3, 1.41, 1.5),
            "sensitivities": tuple(tuple((steps**power).tolist()) for power in (3, 2, 0.1)),
            "spreads": (1.1, 0.8, 0.2),
            "suggestion": 1.5,
            **changed,
        }
    )


def test_the_page_takes_the_section():
    page = render(samples.digits(), sections=(kernel_section(summary(), ("up", "down")),))
    assert Page(page).faults == []
    for words in ("0.61", "sorted by class (up, down)", "σ_w = 1.5", "the flattest", "Eigenvalue decay"):
        assert words in page


def test_advice_follows_the_spread():
    text = str(kernel_section(summary()))
    assert "with σ_w = 1.5 it would be" in text
    content = str(kernel_section(summary(suggestion=1.41, spreads=(1.1, 0.2, 0.8))))
    assert "no σ_w nearby makes it flatter" in content
    assert "the flattest" not in content


def test_a_matrix_of_two_sequences_is_drawn_without_an_overflow():
    gram_picture(summary(picture=((1.0, 0.5), (0.5, 1.0)), groups=(0, 1)))


def test_blocks_of_classes_have_borders():
    lines = gram_picture(summary()).axes[0].collections
    assert [len(each.get_segments()) for each in lines] == [3, 3]
    assert len(gram_picture(summary(groups=())).axes[0].collections[0].get_segments()) == 2


def test_a_kernel_of_zeros_has_no_spectrum():
    assert eigenvalue_decay(summary(eigenvalues=(0.0, 0.0))) is None
    assert "no spectrum" in str(kernel_section(summary(eigenvalues=(0.0, 0.0))))
    assert effective_rank((0.0,)) == directions_for((0.0,)) == 0


def test_one_line_a_sigma():
    assert len(sensitivity_curves(summary()).axes[0].lines) == 3


@pytest.mark.parametrize("size", [1, 2])
def test_few_sequences(size):
    few = summary(picture=((1.0,) * size,) * size, groups=(0,) * size, eigenvalues=(1.0,) * size)
    assert Page(render(samples.digits(), sections=(kernel_section(few),))).faults == []


def test_it_comes_back_from_json():
    assert KernelSummary.from_dict(summary().to_dict()) == summary()
