"""How a compiled kernel hands blocks to several threads without the interpreter."""
