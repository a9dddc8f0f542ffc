# ruff: noqa: N806 (X is the name of the contract)
"""The same model gives the same verdicts on a GPU as on the CPU, and is left there as it was."""

import copy

import pytest
import torch
from torch import nn

from sostenuto.audits import adapt
from sostenuto.audits.audit import audit
from sostenuto.audits.page import render
from sostenuto.models.prediction import SequenceClassifier, SequenceRegressor
from sostenuto.nn import LipschitzRNN, UnICORNN

pytestmark = pytest.mark.gpu(interpreted=False)


class Last(nn.Module):
    def __init__(self, mixed=False):
        super().__init__()
        self.layer, self.head, self.mixed = nn.LSTM(2, 8, batch_first=True), nn.Linear(8, 2), mixed

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=self.mixed):
            return self.head(self.layer(x)[0][:, -1])


def examples():
    X = torch.randn(24, 20, 2, generator=torch.Generator().manual_seed(0))
    return X, X[:, :, 0].sum(1)


MODELS = {
    "unicornn": lambda: SequenceClassifier(UnICORNN(2, 8, batch_first=True, step_size=0.2), 2),
    "lipschitz": lambda: SequenceClassifier(LipschitzRNN(2, 6, batch_first=True, gamma=(2.0, 0.0), step_size=0.2), 2),
    "lstm": Last,
    "regressor": lambda: SequenceRegressor(UnICORNN(2, 8, batch_first=True, step_size=0.2)),
    "every step": lambda: adapt(nn.GRU(2, 2, batch_first=True)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_on_a_gpu_is_judged_as_on_the_cpu(name):
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    X, signal = examples()
    y = signal if name == "regressor" else (signal > 0).long()
    here = audit(model, X, y, train=(X, y), progress=False)
    there = copy.deepcopy(model).cuda()
    found = audit(there, X.cuda(), y.cuda(), train=(X.cuda(), y.cuda()), progress=False)
    assert set(found.refused) == set(here.refused)
    assert {parameter.device.type for parameter in there.parameters()} == {"cuda"}
    for before, after in zip(model.parameters(), there.parameters(), strict=True):
        assert torch.equal(before, after.cpu())
    assert found.memory.whole == pytest.approx(here.memory.whole, rel=1e-3)
    assert found.lyapunov.largest == pytest.approx(here.lyapunov.largest, abs=1e-3)
    assert found.gradients.layers[0].ratio == pytest.approx(here.gradients.layers[0].ratio, rel=0.02)
    assert found.curvature.top[0] == pytest.approx(here.curvature.top[0], rel=0.02)
    for check in ("memory", "lyapunov", "certificates", "gradients", "generalization"):
        assert found.verdicts[check].label == here.verdicts[check].label
    assert len(render(found)) > 10_000


# torch runs bfloat16 weights by cuDNN but never lays them out in one chunk for it: `cudnn.is_acceptable` leaves it out.
@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk:UserWarning")
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "mixed"])
def test_half_and_mixed_precision_on_a_gpu(kind):
    torch.manual_seed(0)
    model = Last(mixed=kind == "mixed").cuda().eval()
    if kind != "mixed":
        model = model.to(getattr(torch, kind))
    X, signal = examples()
    found = audit(model, X, (signal > 0).long(), progress=False)
    assert set(found.refused) == {"generalization", "certified"}


def test_small_responses_are_not_drowned_by_short_products():
    """cuDNN rounds to 10 bits by default: a forgetful network would seem to remember forever."""
    torch.manual_seed(0)
    model, (X, signal) = Last().eval(), examples()
    here = audit(model, X, (signal > 0).long(), checks="memory", progress=False).memory
    found = audit(copy.deepcopy(model).cuda(), X, (signal > 0).long(), checks="memory", progress=False).memory
    for there, law in zip(found.impulses, here.impulses, strict=True):
        assert there.half_life == pytest.approx(law.half_life, rel=1e-2)
        assert {there.kind, law.kind} <= {"exponential", "no law"}
    assert found.older.change == pytest.approx(here.older.change, abs=1e-4)
    assert torch.backends.cudnn.allow_tf32


def test_a_layer_bound_to_gpu_kernels_is_followed_on_the_cpu():
    torch.manual_seed(0)
    model = SequenceClassifier(UnICORNN(2, 8, batch_first=True, backend="gpu"), 2).cuda()
    found = audit(model, *[part[:4] for part in (examples()[0], torch.tensor([0, 1, 0, 1]))], checks=["lyapunov"])
    assert found.refused == {}
    assert model.layer.backend == "gpu"
