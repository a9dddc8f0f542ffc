"""What several experiments share, one subject a module, so that every ``run.py`` stays short."""
