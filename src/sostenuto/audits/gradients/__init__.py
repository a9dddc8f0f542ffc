"""Whether gradients survive time: how much they grow or fade from step to step, one method per file."""
