"""Whether a module still runs the code that a proof speaks of."""

from torch import nn
from torch.nn.utils import parametrize

_HARMLESS = {"__init__", "__repr__", "extra_repr", "reset_parameters"}
_LIBRARIES = ("sostenuto", "torch")


def overridden(module: nn.Module) -> str:
    """Say which methods of a library's class a subclass or the module itself replaces; an empty string if none.

    A proof reads the weights of a module and assumes the library's code around them. What a subclass adds under names
    of its own, and how it makes or shows its weights, changes nothing.

    >>> louder = nn.ReLU()
    >>> louder.forward = lambda input: 2 * input
    >>> overridden(louder), overridden(nn.ReLU())
    ('ReLU changes forward', '')
    """
    own = parametrize.type_before_parametrizations(module)
    known = next(kind for kind in own.__mro__ if kind.__module__.partition(".")[0] in _LIBRARIES)
    added = own.__mro__[: own.__mro__.index(known)]
    defined = {name for kind in added for name in vars(kind)} | set(vars(module))
    changed = {name for name in defined - _HARMLESS if _is_code(getattr(known, name, None))}
    return f"{own.__name__} changes {', '.join(sorted(changed))}" if changed else ""


def _is_code(attribute: object) -> bool:
    return callable(attribute) or isinstance(attribute, property)
