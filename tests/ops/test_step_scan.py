# ruff: noqa: N803, N806 (T, B, H are the names inside ops)

import numpy as np
import torch

from sostenuto.ops.step import step_scan
from tests.laws.op_laws import ScanLaws

SCALE = 0.7


class TestStepScan(ScanLaws):
    """A gated unit with a slow second component, and an input twice as wide as the state."""

    states = ("h", "c")

    def inputs(self, T, B, H):
        draw = {"dtype": torch.float64}
        return {
            "x": torch.randn(T, B, 2 * H, **draw),
            "weight": torch.randn(H, H, **draw) / H**0.5,
            "h": torch.randn(B, H, **draw),
            "c": torch.randn(B, H, **draw),
            "timespans": 0.1 + 0.8 * torch.rand(T, B, **draw),
        }

    def run(self, tensors, backend):
        def step(x_t, state, span):
            h, c = state
            # The step sees its input as it came: the precision of its arithmetic is its own choice.
            drive, gate = x_t.to(h.dtype).chunk(2, dim=-1)
            h = h + span * (torch.sigmoid(gate) * torch.tanh(h @ tensors["weight"].T + drive + c) - h)
            return h, c + 0.1 * span * (h - c)

        state = (tensors["h"], tensors["c"])
        outputs, last = step_scan(tensors["x"], state, step, timespans=tensors.get("timespans"), scale=SCALE)
        return outputs, *last

    def loop(self, arrays):
        x, weight, h, c = (arrays[name] for name in ("x", "weight", "h", "c"))
        H, outputs = h.shape[1], []
        spans = SCALE * arrays.get("timespans", np.ones(x.shape[:2]))[:, :, None]
        for x_t, span in zip(x, spans, strict=True):
            gate = 1 / (1 + np.exp(-x_t[:, H:]))
            h = (1 - span) * h + span * gate * np.tanh(np.einsum("ij,bj->bi", weight, h) + x_t[:, :H] + c)
            c = (1 - 0.1 * span) * c + 0.1 * span * h
            outputs.append(h)
        return np.stack(outputs), h, c


def test_without_spans_the_step_gets_the_scale_itself():
    seen = []

    def step(x_t, state, span):
        seen.append(span)
        return (state[0] + x_t,)

    step_scan(torch.ones(3, 1, 1), (torch.zeros(1, 1),), step, scale=0.25)
    assert seen == [0.25, 0.25, 0.25]
