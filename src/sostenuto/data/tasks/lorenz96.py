"""Lorenz-96: predict a chaotic system some steps ahead."""

import numpy as np
from jaxtyping import Float

from sostenuto.checks import check_count, check_positive, require
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.parts import dataset
from sostenuto.data.tasks.runge_kutta import integrate


def lorenz96(
    seed: int = 0,
    *,
    num_train: int = 128,
    num_validation: int = 128,
    num_test: int = 128,
    num_steps: int = 2000,
    num_variables: int = 5,
    forcing: float = 8.0,
    horizon: int = 25,
    step_size: float = 0.01,
    washout: int = 0,
) -> Dataset:
    """Predict the state ``horizon`` steps ahead at every step: ``(num_steps, num_variables)`` in and out.

    ``x′_i = (x_{i+1} − x_{i−2})·x_{i−1} − x_i + forcing``, indices around a ring; chaotic for ``forcing=8``, calm for
    ``forcing=0.9``. Integrated by RK4 with ``step_size`` from ``x_i(0) ~ U(forcing − ½, forcing + ½)``; the first
    ``washout`` steps are dropped.

    rusch2021 (Rusch, Mishra: *UnICORNN*), Appendix D, eq. (81): five variables, both forcings, 128 sequences of 2000
    steps in each part. It takes the discretization from Rusch & Mishra (*coRNN*, 2021) without printing it; step,
    initial states and a horizon of 25 steps are what is used here. The calm system is hardly past the Hopf bifurcation
    of the fixed point ``x = forcing`` (8/9 for five variables): a small, slow, periodic wave around it.

    >>> data = lorenz96(num_train=2, num_validation=0, num_test=0, num_steps=50, horizon=5)
    >>> data.train.sequences[0].shape, bool((data.train.sequences[0][5:] == data.train.targets[0][:-5]).all())
    ((50, 5), True)
    """
    check_count("num_steps", num_steps, least=2)
    check_count("horizon", horizon)
    check_count("washout", washout, least=0)
    check_count("num_variables", num_variables, least=4)
    check_positive("step_size", step_size)

    def draw(count: int, rng: np.random.Generator) -> SequenceSet:
        initial = rng.uniform(forcing - 0.5, forcing + 0.5, (count, num_variables))
        path = trajectories(initial, step_size, washout + num_steps + horizon - 1, forcing=forcing)[:, washout:]
        return SequenceSet(
            list(path[:, :num_steps]),
            list(path[:, horizon:]),
            "sequence",
            channel_names=tuple(f"x{i + 1}" for i in range(num_variables)),
            target_name=f"state {horizon} steps ahead",
        )

    return dataset(
        "lorenz96",
        draw,
        seed,
        train=num_train,
        validation=num_validation,
        test=num_test,
        description=f"Lorenz-96 with forcing {forcing:g}; the target of every step is the state {horizon} steps ahead.",
        origin="generated: rusch2021, Appendix D, eq. (81)",
    )


def vector_field(state: Float[np.ndarray, "... variable"], forcing: float) -> Float[np.ndarray, "... variable"]:
    """Return the right-hand side of the Lorenz-96 system at ``state``."""
    ahead, behind, two_behind = np.roll(state, -1, -1), np.roll(state, 1, -1), np.roll(state, 2, -1)
    return (ahead - two_behind) * behind - state + forcing


def trajectories(
    initial: Float[np.ndarray, "n variable"], step_size: float, num_steps: int, *, forcing: float
) -> Float[np.ndarray, "n time variable"]:
    """Follow the system from ``initial`` states: ``(n, num_steps + 1, variable)``."""
    path = integrate(lambda state: vector_field(state, forcing), initial, step_size, num_steps).swapaxes(0, 1)
    require(bool(np.isfinite(path).all()), "expected a finite path", "got overflow", "use a smaller step_size")
    return path
