"""The recurrences written as plain loops over single layers in one direction, independent of the library's scans."""

import torch

SIGMAS = {
    "tanh": torch.tanh,
    "relu": lambda v: v.clamp(min=0),
    "hardtanh": lambda v: v.clamp(-1, 1),
    "logistic": lambda v: 1 / (1 + torch.exp(-v)),
    "identity": lambda v: v,
}


def run(step, x, *state):
    """Apply ``state = step(u, *state)`` over time; return the first part at every step, and the last state."""
    outputs = []
    for u in x:
        state = step(u, *state)
        outputs.append(state[0])
    return torch.stack(outputs), state


def zeros(x, size):
    return torch.zeros(x.shape[1], size, dtype=x.dtype)


def assert_same(layer, x, step, *start, parts=1):
    """Compare a layer of one level with a plain loop, outputs, final state and the gradient of the input, to 1e-10."""
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    x = x.clone().requires_grad_()
    start = start or tuple(zeros(x, layer.hidden_size) for _ in range(parts))
    expected, last = run(step, x, *start)
    output, state = layer(x, start[0][None] if parts == 1 else tuple(part[None] for part in start))
    state = (state,) if parts == 1 else state
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)
    for one, other in zip(state, last, strict=True):
        torch.testing.assert_close(one[0], other, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(output)
    (got,), (wanted,) = (torch.autograd.grad((each * weight).sum(), x) for each in (output, expected))
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def count(layer):
    return sum(parameter.numel() for parameter in layer.parameters())
