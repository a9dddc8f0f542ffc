"""Every layer as an exported program, in a process of its own: symbolic sizes are not what the type checks ask for."""

from tests.apart import run_apart

SCRIPT = """
import torch
from sostenuto.nn import LAYERS

UNITS = ("lstm", "gru", "rnn", "residual-gru", "residual-lstm")
CASES = [(name, {}) for name in LAYERS] + [
    ("unicornn", {"positive": True}),
    ("unicornn", {"memory": "recompute"}),
    ("lipschitz", {"integrator": "imex"}),
    ("lipschitz", {"gated": True, "integrator": "midpoint"}),
    ("antisymmetric", {"gated": True}),
    ("cornn", {"damping": "explicit"}),
    ("stable", {"form": "dissipative"}),
    ("stable", {"activation": "identity", "integrator": "exact"}),
    ("exprnn", {"map": "cayley"}),
    ("indrnn", {"batch_norm": True}),
]
for name, options in CASES:
    layer = LAYERS[name](2, 4, num_layers=2, **options).eval()
    x = torch.randn(5, 3, 2)
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x))
    length = ({0: torch.export.Dim("length", min=2, max=64)},)
    # torch's own units, and layers that run as a loop of steps, are exported for the length they were shown.
    if name in UNITS or options.get("gated"):
        try:
            torch.export.export(layer, (x,), dynamic_shapes=length)
        except torch._dynamo.exc.UserError as error:
            assert "specialized it to be a constant (5)" in str(error), error
            continue
        raise AssertionError(f"{name} {options} was exported for every length: move it among those that are checked")
    program = torch.export.export(layer, (x,), dynamic_shapes=length).module()
    for steps in (2, 5, 9):
        x = torch.randn(steps, 3, 2)
        torch.testing.assert_close(program(x), layer(x))
"""


def test_exported_layers_compute_the_same():
    run_apart(SCRIPT)
