"""Many models as one: streams, layers, optimiser and selection over a leading replica axis."""
