"""The stability limit of the oscillators' steps."""

import warnings


def warn_of_divergence(name: str, worst: float) -> None:
    """Warn where a step g√α is not inside the stability limit of symplectic Euler, 2; ``name`` says what was measured.

    >>> warn_of_divergence("step_size/2 · √stiffness", 0.5)
    """
    if worst >= 2:
        warnings.warn(
            f"expected {name} below 2, the stability limit of the oscillators, got {worst:.3g}: states grow "
            "exponentially; lower step_size or stiffness, or divide timespans by their median",
            stacklevel=3,
        )
