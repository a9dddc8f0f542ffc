import numpy as np

from sostenuto.data.tasks.adding import adding


def test_one_mark_in_each_half_and_the_target_is_their_sum() -> None:
    for steps in (20, 21):
        data = adding(num_train=300, num_validation=0, num_test=0, num_steps=steps).train
        values = np.stack(list(data.sequences))
        marks = values[:, :, 1]
        assert set(np.unique(marks)) == {0.0, 1.0}
        assert (marks[:, : steps // 2].sum(1) == 1).all()
        assert (marks[:, steps // 2 :].sum(1) == 1).all()
        assert (marks.sum(0) > 0).all()
        np.testing.assert_allclose((values[:, :, 0] * marks).sum(1), np.asarray(data.targets), rtol=1e-15)


def test_always_answering_one_has_the_known_error() -> None:
    targets = np.asarray(adding(num_train=20000, num_validation=0, num_test=0, num_steps=2).train.targets)
    # Variance 1/6; the squared error has standard deviation √(1/15 − 1/36) = 0.197, its mean 0.0014 over 20000.
    assert abs(((targets - 1) ** 2).mean() - 1 / 6) < 0.006
