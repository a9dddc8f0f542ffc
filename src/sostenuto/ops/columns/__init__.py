"""What scans over independent columns share: batch rows and units side by side as one row, cut into blocks."""
