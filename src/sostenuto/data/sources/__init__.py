"""Data sets by name, one a file; `sostenuto.data.registry` lists them."""
