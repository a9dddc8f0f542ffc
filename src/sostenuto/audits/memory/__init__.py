"""How long a model remembers: its memory function, measured by the definition, and the law of its tail."""
