import pytest
import torch

from sostenuto.checks import InputError
from sostenuto.models.forecaster import Forecaster
from sostenuto.nn import GRU, UnICORNN


def silent(model: Forecaster) -> Forecaster:
    """Let the read-out say zero."""
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    return model.eval()


def test_relative_to_the_last_true_value():
    model = silent(Forecaster(GRU(2, 4, batch_first=True), num_channels=2, horizon=3))
    values = torch.randn(3, 6, 2)
    lengths = torch.tensor([6, 1, 4])
    expected = torch.stack([values[0, 5], values[1, 0], values[2, 3]])[:, None].expand(-1, 3, -1)
    torch.testing.assert_close(model(values, lengths), expected)
    torch.testing.assert_close(model(values), values[:, -1:].expand(-1, 3, -1))


def test_absolute_forecasts_start_from_zero():
    model = silent(Forecaster(GRU(2, 4, batch_first=True), num_channels=2, horizon=3, relative=False))
    assert model(torch.randn(2, 6, 2)).count_nonzero() == 0


def test_relative_is_absolute_plus_the_last_value():
    layer = UnICORNN(2, 4, batch_first=True)
    relative, absolute = Forecaster(layer, 2, 3), Forecaster(layer, 2, 3, relative=False)
    absolute.load_state_dict(relative.state_dict())
    values = torch.randn(2, 6, 2)
    torch.testing.assert_close(relative(values), absolute(values) + values[:, -1:])


def test_indicator_channels_are_read_but_not_predicted():
    model = silent(Forecaster(GRU(4, 3, batch_first=True), num_channels=2))
    values = torch.randn(2, 6, 4)
    torch.testing.assert_close(model(values), values[:, -1:, :2])


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_generate_feeds_forecasts_back(horizon):
    model = Forecaster(GRU(2, 4, batch_first=True), 2, horizon).eval()
    values = torch.randn(2, 6, 2)
    made = model.generate(values, 5)
    assert made.shape == (2, 5, 2)
    past, expected = values, []
    while len(expected) < 5:
        forecast = model(past[:, -6:]).detach()
        past = torch.cat([past, forecast], dim=1)
        expected.extend(forecast.unbind(1))
    torch.testing.assert_close(made, torch.stack(expected[:5], dim=1))
    assert not made.requires_grad


def test_generate_longer_than_its_past():
    model = Forecaster(GRU(1, 4, batch_first=True), 1, horizon=4).eval()
    assert model.generate(torch.randn(2, 2, 1), 9).shape == (2, 9, 1)


def test_generate_refuses_what_it_cannot_feed_back():
    model = Forecaster(GRU(4, 3, batch_first=True), num_channels=2)
    with pytest.raises(InputError, match="expected 2 channels to run freely, got 4"):
        model.generate(torch.zeros(1, 3, 4), 2)
    with pytest.raises(InputError, match="steps"):
        Forecaster(GRU(2, 3, batch_first=True), 2).generate(torch.zeros(1, 3, 2), 0)
    with pytest.raises(InputError, match="horizon"):
        Forecaster(GRU(2, 3, batch_first=True), 2, horizon=0)
