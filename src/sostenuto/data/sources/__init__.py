"""Data sets by name, one per file; `sostenuto.data.registry` lists them."""
