"""The version, read by the build and by every run that records it."""

__version__ = "0.2.0"
