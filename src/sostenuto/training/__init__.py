"""Training: config, loop, checkpoints, probes, run folders. Devices and processes are Accelerate's."""
