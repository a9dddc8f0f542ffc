"""The pendulum: predict the next angle and angular velocity."""

import numpy as np
from jaxtyping import Float

from sostenuto.checks import check_count, check_positive
from sostenuto.data.dataset import Dataset, SequenceSet
from sostenuto.data.tasks.parts import dataset
from sostenuto.data.tasks.runge_kutta import integrate

_SUBSTEPS = 10


def pendulum(
    seed: int = 0,
    *,
    num_train: int = 100,
    num_validation: int = 50,
    num_test: int = 100,
    num_steps: int = 100,
    step_size: float = 0.1,
    damping: float = 0.0,
    amplitude: float = 2.4,
    noise: float = 0.0,
) -> Dataset:
    """Predict every next state of a pendulum from the states so far: ``(num_steps, 2)`` in, ``(num_steps, 2)`` out.

    ``θ″ = −sin θ − damping·θ′``, released at rest from ``θ ~ U(−amplitude, amplitude)`` at a random moment of its
    first period or so (up to 10 time units ago), observed every ``step_size`` as channels ``(θ, θ′)``. Gaussian
    ``noise`` is added to the inputs; the targets are the true next states. Time is in units of √(length/gravity).

    erichson2021 (Erichson, Azencot, Queiruga, Hodgkinson, Mahoney: *Lipschitz recurrent neural networks*), Figure 1,
    which trains on "simple pendulum dynamics" and gives no settings: amplitude, step and sizes are chosen here.

    >>> data = pendulum(num_train=3, num_validation=0, num_test=0)
    >>> data.train.sequences[0].shape, bool((data.train.sequences[0][1:] == data.train.targets[0][:-1]).all())
    ((100, 2), True)
    """
    check_count("num_steps", num_steps, least=2)
    for name, value in (("step_size", step_size), ("amplitude", amplitude)):
        check_positive(name, value)
    for name, value in (("damping", damping), ("noise", noise)):
        check_positive(name, value, zero=True)
    lead = int(10 / step_size)

    def draw(count: int, rng: np.random.Generator) -> SequenceSet:
        angle, start = rng.uniform(-amplitude, amplitude, count), rng.integers(0, lead + 1, count)
        initial = np.stack([angle, np.zeros(count)], axis=-1)
        path = trajectories(initial, step_size, lead + num_steps, damping=damping)
        kept = path[np.arange(count)[:, None], start[:, None] + np.arange(num_steps + 1)]
        inputs = kept[:, :-1] + noise * rng.normal(size=(count, num_steps, 2))
        return SequenceSet(
            list(inputs),
            list(kept[:, 1:]),
            "sequence",
            channel_names=("angle", "velocity"),
            target_name="next state",
        )

    return dataset(
        "pendulum",
        draw,
        seed,
        train=num_train,
        validation=num_validation,
        test=num_test,
        description="Angle and angular velocity of a pendulum; the target of every step is the next state.",
        origin="generated: erichson2021, Figure 1",
    )


def trajectories(
    initial: Float[np.ndarray, "n 2"], step_size: float, num_steps: int, *, damping: float = 0.0
) -> Float[np.ndarray, "n time 2"]:
    """Follow pendulums from ``initial`` angles and velocities: ``(n, num_steps + 1, 2)``, ten RK4 steps a sample."""

    def field(state: np.ndarray) -> np.ndarray:
        angle, velocity = state[..., 0], state[..., 1]
        return np.stack([velocity, -np.sin(angle) - damping * velocity], axis=-1)

    path = integrate(field, initial, step_size / _SUBSTEPS, num_steps * _SUBSTEPS)
    return path[::_SUBSTEPS].swapaxes(0, 1)


def energy(state: Float[np.ndarray, "... 2"]) -> Float[np.ndarray, "..."]:
    """Return the energy ``θ′²/2 + 1 − cos θ`` of angle and velocity, constant along an undamped path."""
    return state[..., 1] ** 2 / 2 + 1 - np.cos(state[..., 0])
