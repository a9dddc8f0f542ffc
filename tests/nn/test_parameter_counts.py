"""The counts that docs/layers.md gives, where no layer's own test asks for them."""

from sostenuto.nn import ResidualGRU, ResidualLSTM, UnICORNN
from tests.nn.plain import count


def test_documented_counts():
    n, d = 10, 3
    assert count(UnICORNN(d, n)) == n * (d + 3)
    assert count(ResidualGRU(d, n)) == 3 * n * (d + n + 2)
    assert count(ResidualLSTM(d, n)) == 4 * n * (d + n + 2)
