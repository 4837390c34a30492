"""Hyperparameter sweeps a person runs."""
