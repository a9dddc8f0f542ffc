"""A matrix on the chip times a few rows, on the tensor cores, for the GPU scans."""
