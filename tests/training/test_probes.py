import pytest
import torch

from sostenuto.models.prediction import SequenceClassifier
from sostenuto.nn import LSTM, RNN, UnICORNN
from sostenuto.training.probes import PROBES, recurrent_spectra, rkhs_norms, weight_norms


def test_weight_norms_of_all_that_is_trained():
    model = SequenceClassifier(UnICORNN(2, 4, learn_step=False, batch_first=True), 3)
    norms = weight_norms(model, 1)
    assert norms["norm/head.weight"] == pytest.approx(float(torch.linalg.norm(model.head.weight.detach())))
    assert "norm/layer.weight_hh_l0" in norms
    assert "norm/layer.time_scale_l0" not in norms


def test_spectra_of_square_matrices_and_ranges_of_vectors():
    dense = SequenceClassifier(RNN(2, 4, num_layers=2, bidirectional=True, batch_first=True), 3)
    with torch.no_grad():
        dense.layer.weight_hh_l0.copy_(torch.diag(torch.tensor([0.5, -2.0, 1.0, 0.0])))
    numbers = recurrent_spectra(dense, 1)
    assert numbers["radius/layer.weight_hh_l0"] == pytest.approx(2.0)
    assert numbers["spectral/layer.weight_hh_l0"] == pytest.approx(2.0)
    assert {"radius/layer.weight_hh_l1", "radius/layer.weight_hh_l1_reverse"} <= numbers.keys()
    vectors = SequenceClassifier(UnICORNN(2, 4, batch_first=True), 3)
    numbers = recurrent_spectra(vectors, 1)
    assert numbers["min/layer.weight_hh_l0"] == pytest.approx(float(vectors.layer.weight_hh_l0.detach().min()))
    assert recurrent_spectra(SequenceClassifier(LSTM(2, 4, batch_first=True), 3), 1) == {}


def test_a_constrained_weight_is_read_constrained():
    model = SequenceClassifier(UnICORNN(2, 4, positive=True, stiffness=0.0, batch_first=True), 3)
    numbers = recurrent_spectra(model, 1)
    assert numbers["min/layer.weight_hh_l0"] == pytest.approx(float(model.layer.weight_hh_l0.detach().min()))
    assert numbers["min/layer.weight_hh_l0"] >= 0


def test_every_probe_has_a_name():
    known = {"weight_norms": weight_norms, "recurrent_spectra": recurrent_spectra, "rkhs_norms": rkhs_norms}
    assert known == PROBES
