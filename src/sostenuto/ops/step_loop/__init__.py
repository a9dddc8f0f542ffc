"""A loop over steps whose states stay in registers, for the instructions of compiled scans."""
