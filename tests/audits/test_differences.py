"""Differences between two models: tests of known answers, and the page."""

import numpy as np
import pytest
import scipy.stats
import torch

import sostenuto as so
from sostenuto.audits.differences import holm, paired_differences, paired_test
from sostenuto.audits.page import render
from sostenuto.benchmarks._audited_models import Weighted


def test_mcnemar_is_the_binomial_test():
    generator = np.random.default_rng(0)
    first, second = generator.random((2, 60)) < np.array([[0.9], [0.7]])
    p, name = paired_test(first.astype(float), second.astype(float), 0)
    better, worse = int((first & ~second).sum()), int((second & ~first).sum())
    assert name == "McNemar"
    assert p == pytest.approx(scipy.stats.binomtest(better, better + worse).pvalue, rel=1e-9)


def test_signs_agree_with_a_t_test_on_normal_numbers():
    generator = np.random.default_rng(1)
    first = generator.standard_normal(80)
    second = first + 0.25 * generator.standard_normal(80) + 0.05
    p, name = paired_test(first, second, 0)
    assert name == "sign flips"
    assert p == pytest.approx(scipy.stats.ttest_rel(first, second).pvalue, abs=0.02)


def test_alike_models_seldom_differ():
    generator = np.random.default_rng(2)
    ps = [paired_test(*(generator.random((2, 100)) < 0.8).astype(float), 0)[0] for _ in range(300)]
    assert np.mean(np.array(ps) < 0.05) <= 0.08


def test_holm_equals_its_definition():
    assert holm([0.04, 0.01, 0.5]) == pytest.approx([0.08, 0.03, 0.5])


def test_two_models_on_the_page():
    x = torch.randn(60, 8, 1, generator=torch.Generator().manual_seed(0))
    y = (x.sum((1, 2)) > 0).long()
    good, poor = Weighted(torch.ones(8)), Weighted(torch.eye(8)[0])
    reports = [so.audit(model, x, y, checks=["noise"], progress=False) for model in (good, poor)]
    found = {one.check: one for one in paired_differences(*reports)}
    assert found["skill"].significant
    assert found["skill"].low > 0
    assert found["skill"].first == 1.0
    page = render(reports[0], against=reports[1], name="good", other="poor")
    assert "Which differences are more than chance" in page
    assert "more than chance" in page
    elsewhere = so.audit(poor, x[:50], y[:50], checks=["noise"], progress=False)
    assert paired_differences(reports[0], elsewhere) == ()
