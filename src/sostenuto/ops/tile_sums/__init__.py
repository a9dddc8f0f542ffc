"""Gradients that every tile of a batch has summed for itself, added up."""
