"""Products of small matrices inside the compiled scans: one factor packed once, then used at every step of time."""
