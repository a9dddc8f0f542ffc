"""`MixedAdam`: AdamW for most weights, another rule for the groups that ask for it."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class MixedAdam(torch.optim.AdamW):
    """AdamW, but for the groups in which ``mark`` is true: those `own_step` moves."""

    mark: str

    def __init__(self, params: Iterable[dict[str, Any]], **options: Any) -> None:
        super().__init__(params, **options)
        for group in self.param_groups:
            group.setdefault(self.mark, False)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step; weights without a gradient stay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients: dict[Tensor, Tensor] = {}
        for group in self.param_groups:
            if group[self.mark]:
                own = {weight: weight.grad for weight in group["params"] if weight.grad is not None}
                self.own_step(group, own)
                gradients |= own
        for weight in gradients:
            weight.grad = None
        super().step()
        for weight, gradient in gradients.items():
            weight.grad = gradient
        return loss

    @abstractmethod
    def own_step(self, group: dict[str, Any], gradients: dict[Tensor, Tensor]) -> None:
        """Move the weights of a marked group by their gradients."""
