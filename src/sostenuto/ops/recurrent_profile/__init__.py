"""What each sequence brings to its pairs in the recurrent NTK, compiled; see ``ops/recurrent_ntk/profile.py``."""
