"""The tables: cards, where files come from, how they are read, split and turned into tensors."""
