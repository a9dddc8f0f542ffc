"""The input map V x + b inside the compiled scans, a tile of batch rows at one step of time."""
