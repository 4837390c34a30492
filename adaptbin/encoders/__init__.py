"""Encoders over stacked replicas."""
