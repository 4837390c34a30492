"""Where a table comes from: a given folder, $ADAPTBIN_DATA, the per-user cache, the source, in that order."""

from __future__ import annotations

import os
from pathlib import Path

from adaptbin.data.download import download as fetch
from adaptbin.data.extras import require
from adaptbin.data.readers import read_embedded, read_table
from adaptbin.data.registry import CARDS, Card, get_card
from adaptbin.data.table import Table, table_fingerprint
from adaptbin.errors import DataNotFoundError

__all__ = ["ENVIRONMENT", "Table", "cache_folder", "find_file", "load_table", "table_fingerprint"]

ENVIRONMENT = "ADAPTBIN_DATA"
"""Environment variable that names the folder with data files."""


def cache_folder() -> Path:
    """The per-user folder that downloads are kept in; it need not exist."""
    return Path(require("platformdirs").user_cache_path("adaptbin", appauthor=False)) / "data"


def find_file(card: Card, folder: Path) -> Path | None:
    """The file of ``card`` below ``folder``, or None.

    ``folder``/key/name and ``folder``/name for each name the file circulates under, then any other file of the same
    kind in ``folder``/key: what a file holds is checked when it is read, whatever it is called.
    """
    for name in card.files:
        for place in (folder / card.key / name, folder / name):
            if place.is_file():
                return place
    suffixes = {Path(name).suffix.lower() for name in card.files}
    return next(
        (p for p in sorted((folder / card.key).glob("*")) if p.suffix.lower() in suffixes and p.is_file()), None
    )


def load_table(
    key: str | Card,
    *,
    data_dir: Path | None = None,
    download: bool = True,
    cache_dir: Path | None = None,
    base_url: str | None = None,
    progress: bool = True,
) -> Table:
    """The table of a data set, from the first of: ``data_dir``, $ADAPTBIN_DATA, the cache, its source.

    ``key``: name of a card, or a card of your own.  ``download``: whether the network may be used.  ``cache_dir``:
    instead of :func:`cache_folder`.  ``base_url``: instead of scheme and host of the card's address.

    Raises ConfigError for an unknown name, DataNotFoundError when the file is nowhere, DataError when the file that
    was found holds another table (no further place is then tried: a wrong file should be seen), ResourceError when a
    file cannot be read or the cache cannot be written.
    """
    card = get_card(key) if isinstance(key, str) else key
    if card.embedded:
        return read_embedded(card)
    from_environment = os.environ.get(ENVIRONMENT)
    given = {"the data folder": data_dir, f"${ENVIRONMENT}": Path(from_environment) if from_environment else None}
    looked = []
    for what, folder in given.items():
        if folder is None:
            continue
        if not folder.is_dir():
            raise DataNotFoundError(f"{card.key}: {what} must be an existing folder, got {str(folder)!r}")
        if path := find_file(card, folder):
            return read_table(card, path)
        looked.append(folder)
    cache = cache_folder() if cache_dir is None else cache_dir
    if path := find_file(card, cache):
        return read_table(card, path)
    looked.append(cache)
    if not download:
        raise DataNotFoundError(_advice(card, looked, "downloading is switched off"))
    try:
        return fetch(card, cache, base_url=base_url, progress=progress)
    except DataNotFoundError as error:
        raise DataNotFoundError(_advice(card, looked, f"download failed: {error}")) from error


def _advice(card: Card, looked: list[Path], reason: str) -> str:
    embedded = ", ".join(sorted(c.key for c in CARDS.values() if c.embedded))
    if card.url is None:
        reason = "it cannot be downloaded"
    return (
        f"{card.key}: no data file. Put {card.files[0]!r} into DIR/{card.key}/ (or DIR itself) and pass --data-dir DIR "
        f"or set {ENVIRONMENT}=DIR. Get it from {card.page}. "
        f"Looked in: {', '.join(str(folder) for folder in looked)}; {reason}. "
        f"Data sets that need no file: {embedded}"
    )
