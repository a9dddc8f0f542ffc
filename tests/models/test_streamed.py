"""Long sequences are predicted window by window, with the answers of the whole and memory for one window."""

import pytest
import torch

from sostenuto.data.batch import SequenceBatch
from sostenuto.models import base
from sostenuto.models.prediction import SequenceClassifier, SequenceToSequence
from sostenuto.nn import LAYERS
from sostenuto.training import predict

WINDOW = 7
NAMES = ["stack", "damped", "unicornn", "lstm", "gru", "lipschitz", "cornn", "indrnn", "sru"]


def made(name: str, **options):
    torch.manual_seed(0)
    return LAYERS[name](2, 6, 2, batch_first=True, **options)


@pytest.fixture
def streaming(monkeypatch):
    """Give a function that runs a model in windows and counts the steps of each call."""

    def run(model, *inputs):
        monkeypatch.setattr(base, "STREAM_WINDOW", WINDOW)
        steps, forward = [], model.layer.forward

        def counted(input, *more, **named):
            steps.append(input.shape[1])
            return forward(input, *more, **named)

        monkeypatch.setattr(model.layer, "forward", counted)
        with torch.no_grad():
            answers = model(*inputs)
        monkeypatch.undo()
        return answers, steps

    return run


@pytest.mark.parametrize("readout", ["last", "mean", "max"])
@pytest.mark.parametrize("name", NAMES)
def test_windows_give_the_answers_of_the_whole(name, readout, streaming):
    model = SequenceClassifier(made(name), 3, readout).eval()
    values = torch.randn(2, 3 * WINDOW + 2, 2)
    with torch.no_grad():
        expected = model(values)
    got, steps = streaming(model, values)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert steps == [WINDOW] * 3 + [2]


@pytest.mark.parametrize("name", ["stack", "unicornn"])
def test_windows_keep_time_spans_and_targets_of_every_step(name, streaming):
    model = SequenceToSequence(made(name), 2).eval()
    values, spans = torch.randn(2, 20, 2), torch.rand(2, 20) + 0.5
    with torch.no_grad():
        expected = model(values, None, spans)
    got, steps = streaming(model, values, None, spans)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert max(steps) == WINDOW


@pytest.mark.parametrize(
    ("name", "options"),
    [("gru", {"bidirectional": True}), ("residual", {"step_size": None}), ("gru", {"hooked": True})],
)
def test_what_has_to_see_the_whole_does(name, options, streaming):
    hooked = options.pop("hooked", False)
    model = SequenceClassifier(made(name, **options), 3).eval()
    if hooked:
        model.layer.register_forward_hook(lambda *_: None)
    _, steps = streaming(model, torch.randn(1, 20, 2))
    assert steps == [20]


def test_long_sequences_are_predicted_by_the_few(monkeypatch):
    model = SequenceClassifier(made("gru"), 3)
    sequences = [torch.randn(length, 2).numpy() for length in (9, 20, 30, 4, 30)]
    data = SequenceBatch.from_sequences(sequences)
    expected = predict.raw_predictions(model, data)
    monkeypatch.setattr(predict, "_MOST_STEPS", 40)
    monkeypatch.setattr(base, "STREAM_WINDOW", WINDOW)
    torch.testing.assert_close(predict.raw_predictions(model, data), expected, rtol=1e-4, atol=1e-5)
