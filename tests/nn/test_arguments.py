"""Arguments of the wrong type, for every layer: tried without the type checks of these tests."""

import pytest
import torch

from sostenuto.nn import LSTM
from sostenuto.nn.arguments import named_arguments
from tests.apart import run_apart

PROGRAM = """
import numpy as np
import torch
from sostenuto.checks import InputError
from sostenuto.nn import LAYERS

x = torch.zeros(5, 3, 2)


def refused(said, call):
    try:
        call()
    except InputError as error:
        assert said in str(error) and str(error).count(". ") == 0, (name, str(error))
    else:
        raise AssertionError(f"{name}: not refused: {said}")


for name, kind in LAYERS.items():
    layer = kind(2, 4)
    refused("expected input to be a tensor, got ndarray", lambda: layer(x.numpy()))
    refused("expected input to be a tensor, got list", lambda: layer(x.tolist()))
    refused("expected input to be a tensor, got NoneType", lambda: layer(None))
    nothing = (None,) * len(layer.state_names)
    refused("to be a tensor, got NoneType; leave the state out to start from 0", lambda: layer(x, nothing))
    refused("expected state to be a tensor or a tuple of them, got ndarray", lambda: layer(x, np.zeros((1, 3, 4))))
    wanted = "one part (" if len(nothing) == 1 else f"{len(nothing)} parts ("
    refused(f"expected a state of {wanted}", lambda: layer(x, (torch.zeros(1, 3, 4),) * 3))
    refused("expected num_layers to be a whole number of at least 1, got 2.0", lambda: kind(2, 4, num_layers=2.0))
    refused("expected num_layers to be a whole number of at least 1, got 0", lambda: kind(2, 4, num_layers=0))
    refused("expected hidden_size to be a whole number of at least 1, got '4'", lambda: kind(2, "4"))
    refused("expected bidirectional to be True or False, got 'no'", lambda: kind(2, 4, bidirectional="no"))
    refused("expected input to be a dense tensor, got a sparse one; call .to_dense()", lambda: layer(x.to_sparse()))
    state = layer(x)[1]
    layer(x, list(state) if isinstance(state, tuple) else [state])
    if not isinstance(layer, torch.nn.RNNBase):
        for flag in ("bias", "batch_first"):
            refused(f"expected {flag} to be True or False, got 'no'", lambda: kind(2, 4, **{flag: "no"}))
        for dtype in ("float32", torch.int64, torch.complex64):
            refused("expected a floating-point torch.dtype, got", lambda: kind(2, 4, dtype=dtype))
    kind(2, 4, proj_size=0)
    if kind.__name__ != "LSTM":
        refused("expected no proj_size", lambda: kind(2, 4, proj_size=2))
    if layer.continuous:
        refused("expected timespans as a tensor, as the input is, got ndarray", lambda: layer(x, timespans=np.ones(5)))
        refused("expected timespans as a tensor, as the input is, got list", lambda: layer(x, timespans=[1.0] * 5))
        assert torch.equal(layer(x, timespans=np.float32(0.5))[0], layer(x, timespans=0.5)[0])
    if hasattr(layer, "step_size") and layer.continuous:
        for number in (np.float32(0.5), np.float64(0.5), np.int64(1)):
            numpys, plain = kind(2, 4, step_size=number), kind(2, 4, step_size=float(number))
            assert numpys.step_size == plain.step_size, name
        for tensor in (torch.tensor(0.5), np.array(0.5)):
            said = "expected step_size to be a finite number above 0, got "
            refused(said, lambda: kind(2, 4, step_size=tensor))
    if not layer.bidirectional and getattr(layer, "step_size", 1) is not None:
        refused("expected input_t to be a tensor, got ndarray", lambda: layer.step(x[0].numpy()))
        refused("expected one step of 1 axis (unbatched) or 2, without the time, got 3", lambda: layer.step(x))

number = "to be a number, or one for A and one for W"
for name, option, wrong, said in (
    ("lipschitz", "gated", "no", "gated to be True or False, got 'no'"),
    ("lipschitz", "gamma", None, f"gamma {number}, got None"),
    ("lipschitz", "beta", (0.5, "a"), f"beta {number}, got (0.5, 'a')"),
    ("antisymmetric", "gated", "no", "gated to be True or False, got 'no'"),
    ("unicornn", "learn_step", "no", "learn_step to be True or False, got 'no'"),
    ("unicornn", "positive", "no", "positive to be True or False, got 'no'"),
    ("unicornn", "time_span", float("nan"), "time_span to be a finite number above 0, got nan"),
    ("stack", "clock", "no", "clock to be True or False, got 'no'"),
    ("stack", "layer_options", "step", "layer_options by name, as {'step_size': 0.1}, got 'step'"),
):
    refused(f"expected {said}", lambda: LAYERS[name](2, 4, **{option: wrong}))
"""


def test_wrong_types_get_one_sentence():
    run_apart(PROGRAM)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_a_projection_counts_as_the_output():
    layer = LSTM(2, 4, proj_size=3, bidirectional=True)
    output, (h, c) = layer(torch.zeros(5, 3, 2))
    assert layer.output_size == output.shape[-1] == 6
    assert (h.shape[-1], c.shape[-1]) == (3, 4)
    layer(torch.zeros(5, 3, 2), (h, c))


def test_calls_are_named_alike():
    assert named_arguments(("x",), {"hx": "h"}) == named_arguments(("x", "h"), {"timespans": None})
