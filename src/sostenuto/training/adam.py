"""Adam on the CPU with little around its one pass over the weights."""

from typing import Any

import torch
from torch import Tensor


class QuickAdam(torch.optim.Adam):
    """`torch.optim.Adam` with ``fused=True``, which looks its tensors up once and not at every step.

    That takes as long as the update of a small model. The state and every number are torch's own. The weights must be
    of one kind of real numbers, on the CPU, in one group; ``decoupled_weight_decay`` makes it AdamW. Where the weights
    that have a gradient change, they are looked up again.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = QuickAdam([weight], lr=0.1, fused=True)
    >>> for _ in range(2):
    ...     weight.grad = torch.ones(2)
    ...     optimizer.step()
    >>> weight.data
    tensor([0.8000, 0.8000])
    """

    _found: tuple[list[Tensor], ...] = ([], [], [], [])

    def step(self, closure: Any = None) -> Any:
        """Take one step."""
        (group,) = self.param_groups
        given = [(weight, weight.grad) for weight in group["params"] if weight.grad is not None]
        weights, *state = self._found
        known = len(given) == len(weights) and all(one is other for (one, _), other in zip(given, weights, strict=True))
        if closure is not None or not known:
            loss = super().step(closure)
            self._look_up()
            return loss
        (beta_1, beta_2), decoupled = group["betas"], group["decoupled_weight_decay"]
        update: Any = getattr(torch, "_fused_adamw_" if decoupled else "_fused_adam_")
        with torch.no_grad():
            torch._foreach_add_(state[2], 1)  # pyright: ignore[reportPrivateImportUsage]
            update(
                weights, [gradient for _, gradient in given], state[0], state[1], [], state[2], lr=group["lr"],
                beta1=beta_1, beta2=beta_2, weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False,
                maximize=group["maximize"],
            )  # fmt: skip
        return None

    # torch wraps a step to announce it to its profiler and to run hooks, for a twentieth of a millisecond, unless it
    # says that it was wrapped: hooks registered with this optimizer are not run.
    step.hooked = True  # pyright: ignore[reportFunctionMemberAccess]

    def load_state_dict(self, state_dict: Any) -> None:
        """Take another state; its tensors are looked up at the next step."""
        super().load_state_dict(state_dict)
        self._found = ([], [], [], [])

    def _look_up(self) -> None:
        """Find what the weights of the step that was just taken have."""
        weights = [weight for weight in self.param_groups[0]["params"] if weight.grad is not None]
        names = ("exp_avg", "exp_avg_sq", "step")
        self._found = (weights, *([self.state[weight][name] for weight in weights] for name in names))
