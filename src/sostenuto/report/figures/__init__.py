"""One figure a file: plain result records in, matplotlib figures out."""
