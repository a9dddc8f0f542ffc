"""Whether a model does on new sequences what it did on its own, and whether its confidence can be believed."""
