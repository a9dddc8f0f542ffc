"""The oscillator step, its inverse and its adjoint on vectors of units: every CPU kernel is made of these three.

With drive x, step g, weight w and stiffness α, and y the state before the step:

    v = tanh(w·y + x),  z ← z − g·(v + α·y),  y ← y + g·z
"""

from sostenuto.ops._cpu.vector_loop import Lanes

Three = tuple[Lanes, Lanes, Lanes]


def advance(alpha: Lanes, weight: Lanes, drive: Lanes, g: Lanes, y: Lanes, z: Lanes) -> Three:
    """Return v, and y and z after the step."""
    value = (weight * y + drive).tanh_alone()
    z = z - g * (value + alpha * y)
    return value, y + g * z, z


def invert(alpha: Lanes, weight: Lanes, drive: Lanes, g: Lanes, y: Lanes, z: Lanes) -> Three:
    """Return v, and y and z before the step that gave these."""
    y = y - g * z
    value = (weight * y + drive).tanh_alone()
    return value, y, z + g * (value + alpha * y)


def adjoint(
    alpha: Lanes, weight: Lanes, g: Lanes, y: Lanes, activated: tuple[Lanes, Lanes], arriving: Lanes, after: Three
) -> tuple[Lanes, Lanes, Three]:
    """Differentiate a step.

    Args:
        alpha: α.
        weight: w.
        g: the step.
        y: the state before it.
        activated: v and the slope of tanh there.
        arriving: the gradient of the output y after the step.
        after: z, ȳ and z̄ after the step, from later ones.

    Returns:
        The gradients x̄ of the drive and ḡ of the step, and z, ȳ and z̄ before it.
    """
    (value, slope), (z, y_bar, z_bar) = activated, after
    force = value + alpha * y
    y_bar = y_bar + arriving
    z_bar = z_bar + g * y_bar
    pull = g * z_bar
    x_bar = -(pull * slope)
    g_bar = y_bar * z - z_bar * force
    return x_bar, g_bar, (z + g * force, y_bar + weight * x_bar - alpha * pull, z_bar)
