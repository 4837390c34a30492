"""Pretraining, probing and checkpoints of a pack of replicas: the only place where all parts meet."""
