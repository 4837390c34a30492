"""Columns of every mixture of kinds, for encoders that treat the kinds differently."""

from __future__ import annotations

from adaptbin.encoders.base import Columns

MIXTURES = {
    "both kinds": Columns(3, (4, 2)),
    "numbers only": Columns(4),
    "categories only": Columns(0, (3, 2, 5)),
    "one number": Columns(1),
    "one category": Columns(0, (3,)),
}
