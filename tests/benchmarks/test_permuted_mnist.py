import numpy as np

from sostenuto.benchmarks import permuted_mnist
from sostenuto.benchmarks.permuted_mnist import Settings


def test_trains_for_its_time_and_reports_the_epoch_of_the_best_validation(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        f"x_{part}": rng.integers(0, 255, (n, 28, 28), dtype=np.uint8) for part, n in (("train", 12), ("test", 5))
    }
    np.savez(tmp_path / "mnist.npz", **arrays, y_train=np.arange(12) % 10, y_test=np.arange(5))
    settings = Settings(4, 1, 0.0, batch=4, seconds=0.1, held_out=4, path=str(tmp_path / "mnist.npz"))
    record = permuted_mnist.run(progress=False, settings=settings)
    assert record["epochs"]
    assert all(0 <= epoch["held out"] <= 1 for epoch in record["epochs"])
    assert 0 <= record["test accuracy"] <= 1
    x, y = permuted_mnist._data(settings)[0]
    assert x.shape == (8, 784)
    assert y.tolist() == list(range(8))
