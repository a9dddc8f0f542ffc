"""Sequences: read, check, split, encode and batch them."""
