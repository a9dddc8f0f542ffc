"""Time spans that UnICORNN reads stably."""

import pytest
import torch
from torch import nn

from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import UnICORNN
from sostenuto.nn.oscillator_layer import MARGIN


@pytest.mark.parametrize(("share", "stays"), [(0.99, True), (1.02, False)])
def test_an_oscillator_stays_bounded_up_to_the_limit_and_not_beyond(share, stays):
    """Without input, small states swing by h²(α + w): past 4 they grow exponentially until tanh bends."""
    layer = UnICORNN(1, 8, step_size=0.5, stiffness=2.0, dtype=torch.float64)
    nn.init.constant_(layer.weight_hh_l0, 1.5)
    nn.init.zeros_(layer.time_scale_l0)
    limit = share * layer.longest_span().item() / MARGIN
    start = torch.full((2, 1, 1, 8), 1e-9, dtype=torch.float64).unbind()
    x = torch.zeros(3000, 1, 1, dtype=torch.float64)
    states = layer(x, start, timespans=torch.full((3000, 1), limit, dtype=torch.float64))[0].abs()
    assert bool(states.max() < 1e-6) == stays


@pytest.mark.parametrize("readout", ["last", "mean", "max"])
def test_a_model_reads_longer_spans_as_the_longest_stable_one(readout):
    torch.manual_seed(0)
    model = SequenceClassifier(UnICORNN(1, 8, 2, batch_first=True, step_size=1.0), 2, readout).eval()
    values = torch.randn(3, 400, 1)
    spans = torch.empty(3, 400).exponential_(0.2)
    limit = model.layer.longest_span()
    assert bool((spans > limit).any())
    answers = model(values, None, spans)
    assert torch.equal(answers, model(values, None, spans.clamp(max=limit.item())))
    assert bool((answers.abs() < 100).all())
    shorter = spans.clamp(max=0.5 * limit.item())
    assert torch.equal(model.states(values, None, shorter), model.layer(values, timespans=shorter)[0])
