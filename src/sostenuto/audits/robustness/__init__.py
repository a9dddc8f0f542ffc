"""How predictions stand what the input may suffer: noise, loss, shift and attack, one method per file."""
