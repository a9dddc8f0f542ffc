"""What the experiments of alemohammad2021 share: tangent kernels, sensitivities, ridges, stacked networks, measures."""

import numpy as np
import pytest
import torch

from sostenuto import datasets
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.estimators import RNTKClassifier
from sostenuto.experiments.tasks.ucr_kernels import RULES, grid_of, kernel_accuracy
from sostenuto.experiments.tasks.ucr_networks import COLUMNS as NETWORKS
from sostenuto.experiments.tasks.ucr_networks import Training, class_scores, initial_weights, network_accuracy
from sostenuto.experiments.tasks.ucr_table import COLUMNS, matrix, measures, paper_rows
from sostenuto.experiments.tasks.wide_networks import sensitivity, tangent_products
from sostenuto.experiments.tasks.window_regression import choose_ridge, ridge_weights, stock_windows
from sostenuto.kernels import EmpiricalNTK, RecurrentNTK
from sostenuto.kernels.wide_rnn import WideRNN


@pytest.mark.parametrize("tied", [True, False])
def test_products_are_the_empirical_kernel(tied):
    network = WideRNN(1, 12, sigma_b=0.3, tied=tied, steps=4, generator=torch.Generator().manual_seed(1))
    random = np.random.default_rng(0)
    left, right = random.normal(size=(3, 4, 1)), random.normal(size=(2, 3, 1))
    found = tangent_products(network, torch.from_numpy(left), torch.from_numpy(right))
    np.testing.assert_allclose(found, EmpiricalNTK(network).gram(list(left), list(right)), rtol=1e-10)


@pytest.mark.parametrize("options", [{}, {"sigma_h": 0.5}, {"activation": "erf", "sigma_w": 1.2, "sigma_u": 0.1}])
def test_differences_are_the_sensitivity(options):
    x, y = np.random.default_rng(3).normal(size=(2, 15, 1))
    kernel = RecurrentNTK(sigma_b=0.05, **options)
    np.testing.assert_allclose(sensitivity(kernel, x, y), kernel.sensitivity(x, y), atol=1e-6)


def test_ridge_weights_solve_the_system():
    random = np.random.default_rng(0)
    root, targets = random.normal(size=(6, 6)), random.normal(size=6)
    matrix = root @ root.T
    expected = np.linalg.solve(matrix + 0.1 * np.eye(6), targets)
    np.testing.assert_allclose(ridge_weights(matrix[None], targets, [0.1])[0, 0], expected)


def test_ridge_is_chosen_on_what_was_held_out():
    """The best of every kernel and ridge term, searched by hand."""
    random = np.random.default_rng(2)
    x, targets, ridges = random.normal(size=(12, 3)), random.normal(size=12), [0.01, 1.0, 10.0]
    matrices, folds = np.stack([x @ x.T, (1 + x @ x.T) ** 2]), np.arange(12) % 3
    errors = np.zeros((2, 3))
    for k, gram in enumerate(matrices):
        for r, ridge in enumerate(ridges):
            for fold in range(3):
                train, held = folds != fold, folds == fold
                weights = np.linalg.solve(gram[train][:, train] + ridge * np.eye(train.sum()), targets[train])
                errors[k, r] += ((gram[held][:, train] @ weights - targets[held]) ** 2).sum()
    assert choose_ridge(matrices, targets, ridges, folds) == np.unravel_index(errors.argmin(), errors.shape)


def test_test_windows_lie_after_the_training_days():
    train, test = stock_windows(np.arange(1.0, 976.0), 10, 10, 30, seed=0)
    scale = np.arange(1.0, 701.0).mean()
    assert max(train.targets) * scale <= 700 + 1e-9
    assert min(window[0, 0] for window in test.sequences) * scale > 700
    assert {len(window) for window in test.sequences} == set(range(10, 21))


def test_a_stacked_gru_is_torchs():
    torch.manual_seed(0)
    weights = initial_weights("gru", 2, 2, 5, 3)
    x = torch.randn(2, 4, 7)
    for index in range(2):
        layer = torch.nn.GRU(1, 5, 2, batch_first=True)
        for number in range(2):
            names = {
                "weight_ih": "input",
                "weight_hh": "recurrent",
                "bias_ih": "input_bias",
                "bias_hh": "recurrent_bias",
            }
            for theirs, ours in names.items():
                getattr(layer, f"{theirs}_l{number}").data = weights[f"{ours}{number}"][index]
        expected = layer(x[index][..., None])[0][:, -1] @ weights["readout"][index].T + weights["readout_bias"][index]
        torch.testing.assert_close(class_scores("gru", weights, x)[index], expected)


def test_a_stacked_gaussian_network_is_the_wide_one():
    weights = {name: value.double() for name, value in initial_weights("gaussian", 1, 2, 6, 1).items()}
    network = WideRNN(1, 6, 2, sigma_v=2**0.5)
    for layer in range(2):
        network.weight_hh[layer].data, network.weight_ih[layer].data = (
            weights[f"recurrent{layer}"],
            weights[f"input{layer}"],
        )
    network.readout.data = weights["readout"][0, 0]
    x = torch.randn(1, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(class_scores("gaussian", weights, x)[0], network(x[0][..., None]))


@pytest.mark.parametrize("column", NETWORKS)
def test_networks_learn_what_is_easy(column):
    """The sign of the mean; no network sees the labels it is judged by."""
    random = np.random.default_rng(0)
    signs = np.tile([-1.0, 1.0], 40)
    rows = signs[:, None, None] + 0.3 * random.normal(size=(80, 6, 1))
    parts = [SequenceSet(list(rows[part]), signs[part] > 0, "classification") for part in (slice(60), slice(60, 80))]
    dataset = Dataset(name="signs", train=parts[0], test=parts[1])
    torch.manual_seed(0)
    found = network_accuracy(dataset, column, 1, 16, [0.01, 1e-6], Training(3, 40, 40, 8), 0)
    assert found["test"].shape == (2, 3)
    assert found["validated"][0].mean() > 95
    assert found["test"][0].mean() > 95


def test_the_papers_rows_give_its_summary():
    """Table 1 from Table 2, with the corrections of docs/errata.md, alemohammad2021.7."""
    paper = paper_rows()
    assert len(paper) == 56
    found = measures(matrix(paper, list(paper), COLUMNS))
    np.testing.assert_allclose(found[0, :4], [80.15, 77.74, 78.15, 77.69], atol=0.02)
    np.testing.assert_allclose(found[1, :4], [92.86, 85.71, 87.50, 82.14], atol=0.01)
    np.testing.assert_allclose(found[3, :4], [97.23, 94.30, 94.86, 94.23], atol=0.05)
    np.testing.assert_allclose(found[4, :4], [2.38, 3.00, 2.89, 3.46], atol=0.02)


@pytest.mark.parametrize("column", ["RNTK", "NTK", "RBF", "Polynomial"])
def test_every_kernel_reads_digits(column):
    digits = datasets.load("digits")
    assert digits.test is not None
    few = Dataset(name="few", train=digits.train.take(np.arange(60)), test=digits.test.take(np.arange(50)))
    found = kernel_accuracy(few, column, folds=3, every=6, seed=0)
    for rule in RULES:
        assert found["test"][rule] > 60
        assert {"C"} < set(found["chosen"][rule][0])
    assert found["validated"]["best"] <= found["validated"]["average"]
    assert found["chosen"]["best"][0] in found["chosen"]["average"]


@pytest.mark.parametrize("rule", ["best", "average"])
def test_rules_are_those_of_the_classifier(rule):
    digits = datasets.load("digits")
    assert digits.test is not None
    few = Dataset(name="few", train=digits.train.take(np.arange(60)), test=digits.test.take(np.arange(50)))
    found = kernel_accuracy(few, "RNTK", folds=3, every=6, seed=0)
    machine = RNTKClassifier(choose=rule, folds=3, random_state=0, **grid_of("RNTK", 6))
    machine.fit(few.train.sequences, few.train.targets)
    assert few.test is not None
    assert found["test"][rule] == pytest.approx(100 * machine.score(few.test.sequences, few.test.targets))
    assert found["validated"][rule] == pytest.approx(100 * machine.best_score_)
    assert len(found["chosen"][rule]) == len(machine.costs_)
