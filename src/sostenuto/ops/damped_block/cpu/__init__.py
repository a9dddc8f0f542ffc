"""The block around damped oscillators on the CPU: over all time in `tiles`, one step of several blocks in `steps`."""

from sostenuto.ops.damped_block.cpu.steps import plan_steps, step_blocks
from sostenuto.ops.damped_block.cpu.tiles import backward, forward

__all__ = ["backward", "forward", "plan_steps", "step_blocks"]
