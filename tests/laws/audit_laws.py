"""What every audit must do. An audit's test inherits `AuditLaws` and names how to ask its question."""

# ruff: noqa: N803 (X is the name of the contract)

import dataclasses
import io
import json
import re
import sys

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from sostenuto.audits import AuditResult
from sostenuto.checks import InputError

COUNT, STEPS, CHANNELS, CLASSES = 24, 7, 2, 3


class RecordingClassifier(nn.Module):
    """A small classifier with dropout, a normalization that learns when training, and a record of how it was asked."""

    def __init__(self, dropout=0.5):
        super().__init__()
        self.dropout, self.norm = nn.Dropout(dropout), nn.BatchNorm1d(CHANNELS)
        self.head = nn.Linear(CHANNELS, CLASSES)
        self.seen = []

    def forward(self, x):
        self.seen.append((self.training, torch.is_grad_enabled(), x.dtype, x.device))
        return self.head(self.dropout(self.norm(x.sum(1))))


class Answering(nn.Module):
    """A model that answers whatever a function of its input gives."""

    def __init__(self, answer):
        super().__init__()
        self.answer, self.inner = answer, nn.Dropout(0.5)

    def forward(self, x):
        return self.answer(x)


def fail(x):
    raise KeyError("no such channel")


BAD_ANSWERS = {
    "a tuple": (lambda x: (x.sum(1), x), "expected the model to return one tensor, got tuple; wrap it"),
    "nothing": (lambda _: None, "expected the model to return one tensor, got NoneType"),
    "one number a row": (lambda x: x.sum((1, 2)), r"expected the model to return \(\d+, out\) or \(\d+, 7, out\), got"),
    "another batch": (lambda x: x[:-1].sum(1), "put the batch first"),
    "time first": (lambda x: x.transpose(0, 1), "put the batch first"),
    "four axes": (lambda x: x[..., None], "put the batch first"),
    "whole numbers": (lambda x: x.sum(1).long(), "expected the model to return real numbers, got torch.int64"),
    "an error": (fail, r"accept a batch of shape \(\d+, 7, 2\).*got KeyError: 'no such channel'; call the model"),
}


class AuditLaws:
    """Define `ask(model, X, y, **options)`; ``options`` always holds ``seed``."""

    def ask(self, model, X, y, **options):
        raise NotImplementedError

    @pytest.fixture
    def X(self):  # noqa: N802
        return torch.randn(COUNT, STEPS, CHANNELS)

    @pytest.fixture
    def y(self):
        return torch.arange(COUNT) % CLASSES

    def test_repeats_exactly_with_its_seed(self, X, y):
        model = RecordingClassifier()
        first = self.ask(model, X, y, seed=3)
        torch.manual_seed(12345)
        np.random.seed(12345)
        assert self.ask(model, X, y, seed=3) == first

    def test_the_result_is_a_frozen_record(self, X, y):
        result = self.ask(RecordingClassifier(), X, y, seed=3)
        assert isinstance(result, AuditResult)
        assert result.seed == 3
        assert result.model == "RecordingClassifier"
        for field in dataclasses.fields(result):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(result, field.name, None)

    def test_the_result_survives_json(self, X, y):
        result = self.ask(RecordingClassifier(), X, y, seed=0)
        plain = json.loads(result.to_json())
        assert plain == result.to_dict()
        assert type(result).from_dict(plain) == result
        assert "NaN" not in result.to_json()

    def test_the_result_says_how_to_get_it_again(self, X, y):
        result = self.ask(RecordingClassifier(), X, y, seed=0)
        assert re.fullmatch(r"[A-Z].{20,}\.", result.method)
        assert result.environment["torch"] == str(torch.__version__)
        assert re.fullmatch("[0-9a-f]{16}", result.checksum)
        moved = X.clone()
        moved[0, 0, 0] += 1.0
        assert self.ask(RecordingClassifier(), moved, y, seed=0).checksum != result.checksum

    def test_the_summary_is_a_sentence(self, X, y):
        text = self.ask(RecordingClassifier(), X, y, seed=0).summary()
        assert re.fullmatch(r"[A-Z].{20,}\.", text)
        assert not re.search(r"\b(nan|inf|None|tensor|n/a)\b", text, re.IGNORECASE)

    def test_the_plot_needs_only_axes(self, X, y, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
        result = self.ask(RecordingClassifier(), X, y, seed=0)
        figure = Figure()
        ax = figure.add_subplot()
        assert result.plot(ax) is None
        assert ax.has_data()
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert figure.axes == [ax]
        figure.savefig(io.BytesIO(), format="svg")

    def test_the_model_is_asked_in_evaluation_mode_without_gradients(self, X, y):
        model = RecordingClassifier().train()
        self.ask(model, X, y, seed=0)
        assert model.seen
        assert not any(training or gradients for training, gradients, _, _ in model.seen)

    def test_no_dropout_in_eval_mode(self, X, y):
        model, twin = RecordingClassifier(dropout=0.9), RecordingClassifier(dropout=0.0)
        twin.load_state_dict(model.state_dict())
        assert self.ask(model, X, y, seed=0) == self.ask(twin, X, y, seed=0)

    def test_the_model_is_left_as_it_was(self, X, y):
        model = RecordingClassifier().train()
        model.norm.eval()
        model.head.weight.grad = torch.ones_like(model.head.weight)
        model.head.bias.requires_grad_(False)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        self.ask(model, X, y, seed=0)
        assert (model.training, model.dropout.training, model.norm.training) == (True, True, False)
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name]), name
        assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))
        assert [p.requires_grad for p in model.head.parameters()] == [True, False]

    def test_random_numbers_are_left_as_they_were(self, X, y):
        state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
        self.ask(Answering(lambda x: torch.rand(len(x), CLASSES)), X, y, seed=0)
        assert torch.equal(torch.get_rng_state(), state)
        assert (np.random.get_state()[1] == numpy_state).all()

    def test_a_model_that_draws_repeats_too(self, X, y):
        model = Answering(lambda x: torch.rand(len(x), CLASSES))
        first = self.ask(model, X, y, seed=1)
        torch.manual_seed(12345)
        assert self.ask(model, X, y, seed=1) == first

    def test_inputs_are_left_as_they_were(self, X, y):
        before, labels = X.clone(), y.clone()
        self.ask(RecordingClassifier(), X, y, seed=0)
        assert torch.equal(X, before)
        assert torch.equal(y, labels)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_runs_in_the_models_precision(self, X, y, dtype):
        model = RecordingClassifier().to(dtype)
        for given in (X, X.double(), X.numpy(), X.double().numpy()):
            self.ask(model, given, y, seed=0)
        assert {seen[2:] for seen in model.seen} == {(dtype, torch.device("cpu"))}

    def test_arrays_are_tensors(self, X, y):
        model = RecordingClassifier()
        assert self.ask(model, X.numpy(), y.numpy(), seed=0) == self.ask(model, X, y, seed=0)

    @pytest.mark.parametrize("case", BAD_ANSWERS)
    def test_a_bad_model_is_refused_in_a_sentence(self, X, y, case):
        answer, message = BAD_ANSWERS[case]
        model = Answering(answer).train()
        with pytest.raises(InputError, match=message) as caught:
            self.ask(model, X, y, seed=0)
        assert "\n" not in str(caught.value)
        assert model.training
        assert model.inner.training
        if case == "an error":
            assert isinstance(caught.value.__cause__, KeyError)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_bad_values_are_refused_by_index(self, X, y, bad):
        X[5, 1, 0] = bad
        with pytest.raises(InputError, match="sequence 5: expected"):
            self.ask(RecordingClassifier(), X, y, seed=0)
