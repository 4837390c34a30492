"""Slow twins of every equation: plain numpy, one replica at a time, loops where the library has none.

Written from the paper (arXiv 2606.19827) and from the numbers in `tests/golden`; the library never imports them.
Everything is float64 unless the method fixes a type.
"""
