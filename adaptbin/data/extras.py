"""Packages that only reading and fetching data files needs, imported when they are."""

from __future__ import annotations

import importlib
from typing import Any

from adaptbin.errors import ResourceError


def require(module: str) -> Any:
    """Import a module of the extra ``data``.  Raises ResourceError, saying how to install it, where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ResourceError(
            f"data files need the extra 'data' (pip install 'adaptbin[data]'): {module} is not installed"
        ) from error
