"""Adaptive bins: what they are (discretizer), when they grow (trigger) and where they split (scorer)."""
