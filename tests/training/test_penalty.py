import numpy as np
import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.data.encoding import Encoding
from sostenuto.data.tasks import spirals
from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import ResidualRNN, UnICORNN
from sostenuto.theory.rkhs import rkhs_norm
from sostenuto.training.config import RunConfig, TrainingConfig
from sostenuto.training.objective import Objective, RKHSPenalty
from sostenuto.training.probes import PROBES
from sostenuto.training.trainer import Trainer


def trained(**options):
    """Train on the spirals of erratum fermanian2021.7, shortened."""
    parts = spirals(seed=0, num_train=50, num_test=0)
    encoding = Encoding.fit(parts.train, scaling="none")
    train = encoding.encode(parts.train)
    torch.manual_seed(0)
    model = SequenceClassifier(ResidualRNN(2, 32, batch_first=True), 2)
    config = TrainingConfig(
        epochs=12, batch_size=50, optimizer="adam", learning_rate=0.1, schedule="constant", gradient_clip=0.0, **options
    )
    progress = Trainer(model, Objective.of(encoding, config, train), config, train, device="cpu", progress=False).run()
    return model, progress


def norm(model):
    return float(rkhs_norm(model.layer, 3, readout=model.head).squared.detach().sum())


def test_penalty_keeps_the_norm_small():
    free, _ = trained()
    for method in ("exact", "stochastic"):
        model, progress = trained(rkhs_penalty=0.1, rkhs_method=method)
        assert norm(model) < norm(free) / 3
        assert np.isfinite(progress.history[-1]["train_loss"])


def test_probe_follows_both_norms():
    model = SequenceClassifier(ResidualRNN(2, 4, batch_first=True), 2)
    numbers = PROBES["rkhs_norms"](model, 0)
    assert numbers["rkhs/all"] == pytest.approx(norm(model) ** 0.5)
    assert numbers["rkhs/all"] == pytest.approx(np.hypot(numbers["rkhs/output_0"], numbers["rkhs/output_1"]))
    weights = torch.cat([model.layer.weight_hh_l0, model.layer.weight_ih_l0], dim=1).detach()
    assert numbers["frobenius/layer"] == pytest.approx(float(weights.norm()), rel=1e-6)


def test_penalty_is_lambda_times_the_squared_norm():
    model = SequenceClassifier(ResidualRNN(2, 4, batch_first=True), 2)
    penalty = RKHSPenalty.of(TrainingConfig(rkhs_penalty=0.3, rkhs_order=2, rkhs_total_variation=0.2), model)
    assert penalty is not None
    expected = 0.3 * rkhs_norm(model.layer, 2, readout=model.head, total_variation=0.2).squared.sum()
    value = penalty(model)
    assert value.item() == pytest.approx(expected.item())
    value.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is None) == (name == "head.bias")
    assert RKHSPenalty.of(TrainingConfig(), model) is None


def test_models_without_an_expansion_are_refused():
    config = TrainingConfig(rkhs_penalty=0.1)
    with pytest.raises(InputError, match="expected a ResidualRNN"):
        RKHSPenalty.of(config, SequenceClassifier(UnICORNN(2, 4, batch_first=True), 2))
    with pytest.raises(InputError, match="smooth activation"):
        RKHSPenalty.of(config, SequenceClassifier(ResidualRNN(2, 4, batch_first=True, activation="relu"), 2))
    with pytest.raises(InputError, match="a layer and a linear head"):
        RKHSPenalty.of(config, torch.nn.Linear(1, 1))


def test_settings_are_toml():
    config = RunConfig(training=TrainingConfig(rkhs_penalty=0.1, rkhs_method="stochastic", rkhs_draws=16))
    assert RunConfig.from_toml(config.to_toml()) == config
    with pytest.raises(InputError, match="rkhs_method"):
        RunConfig.from_dict({"training": {"rkhs_method": "guess"}})
    with pytest.raises(InputError, match="rkhs_total_variation"):
        TrainingConfig(rkhs_total_variation=1.0)
