# ruff: noqa: N803, N806 (X is the name of the contract)
"""Models whose memory is known: what is said of them is right, or undecided."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import j0
from torch import nn

from sostenuto.audits.audit import audit
from sostenuto.audits.memory.data_memory import CHECK, data_memory
from sostenuto.audits.memory.proved import proved_memory
from sostenuto.benchmarks._audited_models import Weighted
from sostenuto.checks import InputError
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import RNN, Stack, UnICORNN
from tests.laws.audit_laws import AuditLaws

STEPS, COUNT = 64, 40


class TestLaws(AuditLaws):
    test_bad_values_are_refused_by_index = None  # the caller has checked its batch
    test_runs_in_the_models_precision = None
    test_arrays_are_tensors = None

    def ask(self, model, X, y, **options):
        return data_memory(model, X, lags=4, **options)


class Filter(nn.Module):
    """y_t = Σ_s ρ(s) x_(t−s), at every step; two scores ±y."""

    def __init__(self, rho):
        super().__init__()
        self.rho = nn.Parameter(torch.as_tensor(rho, dtype=torch.float32))

    def forward(self, x):
        steps = x.shape[1]
        lag = torch.arange(steps)[:, None] - torch.arange(steps)
        kernel = F.pad(self.rho, (0, max(steps - len(self.rho), 0)))[lag.clamp(min=0)] * (lag >= 0)
        y = torch.einsum("st,btc->bsc", kernel, x).sum(-1, keepdim=True)
        return torch.cat([y, -y], -1)


class Reading(nn.Module):
    def __init__(self, layer, width, *, window=None, dropout=0.0, at_end=True):
        super().__init__()
        self.layer, self.head, self.dropout = layer, nn.Linear(width, 2), nn.Dropout(dropout)
        self.window, self.at_end = window, at_end

    def forward(self, x):
        x = x if self.window is None else x[:, -self.window :]
        scores = self.head(self.dropout(self.layer(x)[0]))
        return scores[:, -1] if self.at_end else scores


class Of(nn.Module):
    """A model that is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Convolutions(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv1d(1, 4, 5), nn.ReLU(), nn.Conv1d(4, 2, 5))

    def forward(self, x):
        return super().forward(x.mT)[:, :, -1]


class Lengths(nn.Module):
    """A leak that is read at the true end; padding must not count."""

    def forward(self, x, lengths):
        y = Filter(0.8 ** torch.arange(STEPS))(x)
        return y[torch.arange(len(x)), lengths - 1]


class Counting(nn.Module):
    """A model with a state of its own that no input explains."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x[:, -1, :1] * torch.tensor([1.0, -1.0]) + 0.3 * torch.tensor([np.sin(self.calls), 0.0]).float()


def logistic(x):
    h = torch.full_like(x[:, 0, :1], 0.3)
    for t in range(x.shape[1]):
        h = (3.9 * h * (1 - h) + 1e-3 * torch.tanh(x[:, t, :1])).clamp(0, 1)
    return torch.cat([h, -h], -1)


class ChaoticNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrent, self.enter = nn.Parameter(torch.randn(64, 64) / 4), nn.Parameter(0.3 * torch.randn(64))

    def forward(self, x):
        h = torch.full((len(x), 64), 0.1)
        for t in range(x.shape[1]):
            h = torch.tanh(h @ self.recurrent + x[:, t] * self.enter)
        return h[:, :2]


def noisy_state(x):
    h = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        h = 0.9 * h + x[:, t] + 0.1 * torch.randn_like(h)
    return torch.cat([h, -h], -1)


def spectral(x):
    steps = x.shape[1]
    kernel = torch.fft.rfft(0.9 ** torch.arange(steps, dtype=x.dtype), 2 * steps)[None, :, None]
    y = torch.fft.irfft(torch.fft.rfft(x, 2 * steps, dim=1) * kernel, 2 * steps, dim=1)[:, :steps]
    return torch.cat([y, -y], -1)


def drifting(x):
    """The last value decides; all scores drift together."""
    return x[:, -1, :1] * torch.tensor([1.0, -1.0]) + 10 * x.sum(1)


TIME = np.arange(STEPS)
LSTM = {"input_size": 1, "hidden_size": 8, "batch_first": True}
# model, half-life from … to, answers depend on the last … (None: on all; "": not asked), is it long, does it look ahead
TRUTH = {
    "leak .5": (lambda: Filter(0.5**TIME), (0.5, 1.7), (5, 14), False, False),
    "leak .9": (lambda: Filter(0.9**TIME), (3, 11), (30, 64), False, False),
    "leak .98": (lambda: Filter(0.98**TIME), (17, 45), None, True, False),
    "unstable": (lambda: Filter(1.05**TIME), (40, 64), None, True, False),
    "integrator": (lambda: Filter(np.ones(STEPS)), (33, 60), None, True, False),
    "delay 5": (lambda: Filter(TIME == 5), (4, 6), (6, 6), False, False),
    "delay 40": (lambda: Filter(TIME == 40), (36, 41), (41, 41), True, False),
    "moving average": (lambda: Filter((TIME < 8) / 8), (3, 8), (8, 8), False, False),
    "power": (lambda: Filter((TIME + 1.0) ** -1.1), (1, 16), "", False, False),
    "Bessel": (lambda: Filter(j0(TIME)), (1, 40), "", False, False),
    "a low floor": (lambda: Filter(0.5**TIME + 1e-4), (0.5, 1.7), "", False, False),
    "last value": (lambda: Of(lambda x: x[:, -1:, 0] * torch.tensor([1.0, -1.0])), (0, 1), (1, 1), False, None),
    "first value": (lambda: Of(lambda x: x[:, :1, 0] * torch.tensor([1.0, -1.0])), None, None, True, None),
    "mean": (lambda: Of(lambda x: x.mean(1) * torch.tensor([1.0, -1.0])), (33, 60), None, True, None),
    "common drift": (lambda: Of(drifting), (0, 1), (1, 1), False, None),
    "convolutions": (
        Convolutions,
        (0, 9),
        (1, 9),
        False,
        None,
    ),
    "LSTM": (lambda: Reading(nn.LSTM(**LSTM), 8), (0, 16), "", False, None),
    "windowed LSTM": (lambda: Reading(nn.LSTM(**LSTM), 8, window=40), (0, 40), (0, 40), False, None),
    "dropout": (lambda: Reading(nn.LSTM(**LSTM), 8, dropout=0.5).train(), (0, 16), "", False, None),
    "dropout that never sleeps": (
        lambda: Of(lambda x: F.dropout(Filter(0.9**TIME)(x), 0.5, training=True)),
        None,
        "",
        False,
        None,
    ),
    "noisy state": (lambda: Of(noisy_state), (3, 11), "", False, None),
    "its own count": (Counting, (0, 1), "", False, None),
    "chaos": (lambda: Of(logistic), None, "", None, None),
    "a chaotic network": (ChaoticNetwork, None, "", None, None),
    "parity": (lambda: Of(lambda x: F.one_hot((x[..., 0] > 0).sum(1) % 2, 2).float()), None, None, True, None),
    "spectral": (lambda: Of(spectral), (3, 11), (30, 64), False, False),
    "both directions": (
        lambda: Reading(nn.GRU(**LSTM, bidirectional=True), 16, at_end=False),
        None,
        "",
        False,
        True,
    ),
    "constant": (lambda: Of(lambda x: torch.ones(len(x), 2)), None, "", None, None),
    "oscillators": (lambda: SequenceClassifier(UnICORNN(1, 8, batch_first=True), 2), None, "", True, None),
}


CHEAP = ("leak .9", "delay 5", "moving average", "common drift", "LSTM", "windowed LSTM", "its own count", "chaos")


@pytest.mark.parametrize(("name", "seed"), [(name, 0) for name in TRUTH] + [(name, 2) for name in CHEAP])
def test_what_is_said_is_right_or_undecided(name, seed):
    build, half_life, depends_on, is_long, ahead = TRUTH[name]
    torch.manual_seed(seed)
    model = build()
    X = torch.randn(COUNT, STEPS, 1, generator=torch.Generator().manual_seed(seed))
    found = data_memory(model, X, seed=seed)
    assert found.is_long in (is_long, None), found.summary()
    if half_life is not None and not found.hidden:
        assert half_life[0] <= found.half_life <= half_life[1], found.summary()
        assert found.half_life_low <= found.half_life <= (found.half_life_high or STEPS)
    if depends_on != "" and found.depends_on is not None:
        assert depends_on is not None, found.summary()
        assert depends_on[0] <= found.depends_on <= depends_on[1], found.summary()
    if ahead is not None:
        assert found.looks_ahead == ahead


@pytest.mark.parametrize(
    ("name", "reason"), [("chaos", "sensitive"), ("constant", "constant"), ("delay 40", ""), ("leak .9", "")]
)
def test_reasons(name, reason):
    X = torch.randn(COUNT, STEPS, 1, generator=torch.Generator().manual_seed(0))
    found = data_memory(TRUTH[name][0](), X)
    assert found.hidden == reason
    outcome = {"delay 40": "good", "leak .9": "caution"}.get(name, "unknown")
    assert CHECK.judge(found, CHECK.thresholds).outcome == outcome
    assert ("undecided" in found.summary()) == bool(reason)


def test_lengths_are_respected():
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(COUNT, STEPS, 1, generator=generator)
    lengths = torch.randint(20, STEPS + 1, (COUNT,), generator=generator)
    clean = data_memory(Lengths(), X, lengths=lengths)
    X[torch.arange(STEPS)[None] >= lengths[:, None]] = 1e6
    found = data_memory(Lengths(), X, lengths=lengths)
    assert found.older == clean.older
    assert 1.5 < found.half_life < 6
    assert found.is_long is False


def test_numbers_are_judged_in_their_own_unit():
    X = torch.randn(COUNT, STEPS, 1, generator=torch.Generator().manual_seed(0))
    model = Of(lambda x: Filter(0.5**TIME)(x)[:, -1, :1])
    one = data_memory(model, X, classes=False, tolerance=0.5, scale=1.0, unit="kPa")
    ten = data_memory(model, X, classes=False, tolerance=5.0, scale=10.0, unit="kPa")
    assert ten.whole == pytest.approx(10 * one.whole)
    assert ten.depends_on == one.depends_on <= 6
    assert "changes none by more than 0.5 kPa" in one.summary()
    assert one.older.turned == ()


def test_decisions_that_change_are_counted():
    X = torch.randn(COUNT, STEPS, 1, generator=torch.Generator().manual_seed(0))
    found = data_memory(TRUTH["last value"][0](), X)
    assert found.older.turned[0] == pytest.approx(0.5, abs=0.2)
    assert found.older.turned[-1] == 0.0


def test_a_proof_stands_beside_the_measurement():
    torch.manual_seed(0)
    model = SequenceClassifier(RNN(1, 4, batch_first=True), 2)
    with torch.no_grad():
        model.layer.weight_hh_l0 *= 0.5
    X = torch.randn(COUNT, STEPS, 1, generator=torch.Generator().manual_seed(0))
    found = data_memory(model, X)
    assert found.proved.lags == found.older.lags
    assert found.proved.forgets_at_most[-1] < 1e-3
    assert "Proved for every input" in found.summary()
    assert data_memory(Filter(0.5**TIME), X).proved is None


def test_a_proof_of_a_stack_is_about_all_of_its_blocks():
    stack = Stack(1, 4, 2, time_scales=(1.0, 3.0), batch_first=True)
    found = proved_memory(SequenceClassifier(stack, 2), [0, 10, 1000])
    assert found.remembers_at_least[0] == pytest.approx(1.0)
    assert found.forgets_at_most[2] < 1e-9 < found.forgets_at_most[1]


@pytest.mark.parametrize(
    "layer",
    [
        lambda: UnICORNN(1, 4, num_layers=2, batch_first=True),
        lambda: Stack(1, 4, 2, time_scales=(1.0, 30.0), batch_first=True),
        lambda: RNN(1, 4, batch_first=True),
    ],
)
def test_measured_states_lie_between_what_is_proved(layer):
    torch.manual_seed(0)
    model = SequenceClassifier(layer(), 2)
    X = 3 * torch.randn(10, STEPS, 1, generator=torch.Generator().manual_seed(0))
    state = data_memory(model, X).proved.state
    assert state.lags[0] == 0
    assert state.lags[-1] > STEPS / 2
    assert np.allclose(state.measured[0], 1)
    assert all(np.diff([state.least, state.measured, state.most], axis=0).flat >= 0)
    assert state.proved_least or state.proved_most
    assert all(np.less_equal(state.proved_least, state.least[: len(state.proved_least)]))
    assert all(np.less_equal(state.most[: len(state.proved_most)], state.proved_most))


def test_states_are_measured_step_by_step():
    """A leak of a known rate loses that share at each step, and the proof of it is as tight."""
    layer = UnICORNN(1, 4, batch_first=True)
    model = SequenceClassifier(layer, 2)
    X = torch.randn(6, STEPS, 1, generator=torch.Generator().manual_seed(0))
    found = data_memory(model, X).proved.state
    with torch.no_grad():
        values = X.double()
        layer = layer.double()
        lag = found.lags[3]
        own, other = (layer(part)[1] for part in (values[:, : STEPS - lag], values[:, : STEPS - lag].roll(1, 0)))
        ends = [layer(values[:, STEPS - lag :], state)[1] for state in (own, other)]
        first, last = (
            torch.cat([(a - b)[0] for a, b in zip(*pair, strict=True)], 1).norm(dim=1) for pair in ((own, other), ends)
        )
    assert found.least[3] == pytest.approx(float((last / first).min()), rel=1e-3)


def test_a_layer_that_is_not_heard_proves_nothing():
    class Bypassed(SequenceClassifier):
        def forward(self, x, lengths=None):
            return super().forward(x, lengths) * 1e-6 + torch.cat([x[:, 0], -x[:, 0]], 1)

    X = torch.randn(12, STEPS, 1, generator=torch.Generator().manual_seed(0))
    assert data_memory(Bypassed(UnICORNN(1, 4, batch_first=True), 2), X).proved is None


@pytest.mark.parametrize(("rate", "label"), [(1.03, "Undecided"), (1.0, "Long memory")])
def test_growth_is_no_memory(rate, label):
    """Growing weights look like growing changes where no state can be followed."""
    X = torch.randn(COUNT, STEPS, 1, generator=torch.Generator().manual_seed(0))
    report = audit(Filter(rate**TIME), X, checks=["memory"], progress=False)
    assert report.memory.is_growing is (label == "Undecided")
    assert report.verdicts["memory"].label == label


def test_what_counts_more_the_older_it_is_may_be_memory():
    """A state that neither grows nor fades tells that it is."""
    layer = RNN(1, 2, batch_first=True, nonlinearity="relu")
    model = SequenceClassifier(layer, 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        layer.weight_hh_l0.copy_(torch.eye(2))
        layer.weight_ih_l0.copy_(torch.ones(2, 1))
        model.head.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    X = torch.rand(COUNT, STEPS, 1, generator=torch.Generator().manual_seed(0))
    X *= torch.linspace(1.0, 0.05, STEPS)[:, None]
    alone, both = (audit(model, X, checks=names, progress=False) for names in (["memory"], ["memory", "lyapunov"]))
    assert alone.memory.is_growing
    assert alone.verdicts["memory"].label == "Undecided"
    assert both.verdicts["lyapunov"].label == "Neutral"
    assert both.verdicts["memory"].label in ("Long memory", "Remembers throughout")


def test_memory_for_ever_is_called_so():
    layer = UnICORNN(1, 4)
    with torch.no_grad():
        layer.time_scale_l0.fill_(-200.0)  # steps of size 0
    assert "is kept for ever" in proved_memory(layer, [0, 1]).told


def test_equal_or_single_sequences_are_refused():
    with pytest.raises(InputError, match="expected at least 2 sequences, as one replaces part of another, got 1"):
        data_memory(Filter(0.5**TIME), torch.randn(1, STEPS, 1))
    with pytest.raises(InputError, match="expected sequences that differ from each other, got equal ones"):
        data_memory(Filter(0.5**TIME), torch.zeros(5, STEPS, 1))


def test_a_model_of_the_last_step_depends_on_the_last_step():
    x = torch.randn(40, 12, 1, generator=torch.Generator().manual_seed(0))
    found = data_memory(Weighted(torch.eye(12)[-1]), x)
    assert found.depends_on == 1
    assert "Answers depend on the last step: older input changes none" in found.summary()


def test_the_half_life_is_found_where_the_first_input_is_all_alike():
    """Ten steps are the same in all sequences, and the answer rests on the ten after them, of ages 44 to 53."""
    x = torch.randn(60, 64, 1, generator=torch.Generator().manual_seed(0))
    x[:, :10] = 0.0
    weights = torch.zeros(64)
    weights[10:20] = 1.0
    found = data_memory(Weighted(weights), x, classes=True, lags=14)
    assert found.half_life is not None
    assert 51 < found.half_life < 52.5  # half of the effect is a quarter of its square: 2.5 of the ten steps
