"""Rows of a tile of a batch, copied between where they lie and the cache."""
