"""How GPU programs that run at once hand each other rows through memory."""
