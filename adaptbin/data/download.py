"""Fetch a data set's archive and keep its file only if it parses to the declared table.

The archive is written to a ``.part`` file that survives an interruption and is continued by the next attempt.  The
file appears in the cache under its own name by one rename, after its fingerprint was compared; until then the cache is
as it was.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from adaptbin.data.extras import require
from adaptbin.data.readers import parse_table, read_table
from adaptbin.data.registry import Card
from adaptbin.data.table import Table, verify
from adaptbin.errors import DataError, DataNotFoundError, ResourceError

TIMEOUT_SECONDS = 30
"""How long the server may stay silent, when connecting and between two blocks."""
_BLOCK_BYTES = 1 << 14
_LARGEST_MEMBER_BYTES = 1 << 28
"""No data set comes near this; a member that claims more is not unpacked."""


class ResumingDownloader:
    """A downloader for :func:`pooch.retrieve` that continues where an earlier attempt stopped.

    Pooch's own starts again and deletes what it had.  Bytes go to ``part``, which is moved to the output once it is
    complete; what is there already is asked for no more where the server knows HTTP ranges.
    """

    def __init__(self, part: Path, *, progress: bool):
        self.part = part
        self.progress = progress
        self.resumed = False
        """Whether the last call continued an earlier attempt."""

    def __call__(self, url: str, output_file: str, pooch: Any, check_only: bool = False) -> None:
        """Download ``url`` to ``output_file``.  Raises DataNotFoundError; a partial body stays in ``part``."""
        requests = require("requests")
        try:
            with self._open(requests, url) as response:
                self._receive(response, url)
        except requests.RequestException as error:
            raise DataNotFoundError(f"{url}: {self._reason(error)}{self._kept()}") from error
        os.replace(self.part, output_file)

    def _open(self, requests: Any, url: str) -> Any:
        """Response for the bytes that are missing, or for all of them."""
        have = self.part.stat().st_size if self.part.exists() else 0
        # Ranges count the bytes sent, so they must be the bytes of the file itself.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        response = requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS)
        if have and response.status_code == requests.codes.requested_range_not_satisfiable:
            # The part is not the beginning of this file, or is all of it; either way start again.
            response.close()
            self.part.unlink()
            return self._open(requests, url)
        try:
            response.raise_for_status()
        except requests.RequestException:
            response.close()
            raise
        self.resumed = have > 0 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        return response

    def _receive(self, response: Any, url: str) -> None:
        have = self.part.stat().st_size if self.resumed else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        # Otherwise urllib3 raises at a short body and throws the last block away; the size is compared below instead.
        response.raw.enforce_content_length = False
        bar = require("tqdm").tqdm(
            desc=PurePosixPath(urlsplit(url).path).name[:40],
            total=total,
            initial=have,
            unit="B",
            unit_scale=True,
            disable=None if self.progress else True,  # None: only where standard error is a terminal
        )
        with self.part.open("ab" if self.resumed else "wb") as file, bar:
            for block in response.iter_content(_BLOCK_BYTES):
                file.write(block)
                bar.update(len(block))
        size = self.part.stat().st_size
        if total is not None and size != total:
            raise DataNotFoundError(f"{url}: the body must have {total} bytes, got {size}{self._kept()}")

    def _kept(self) -> str:
        size = self.part.stat().st_size if self.part.exists() else 0
        return f"; the first {size} bytes are kept, run again to continue" if size else ""

    @staticmethod
    def _reason(error: Any) -> str:
        if error.response is not None:
            return f"the server answered {error.response.status_code} {error.response.reason}"
        return f"{type(error).__name__}: {error}"


def download(card: Card, cache_dir: Path, *, base_url: str | None = None, progress: bool = True) -> Table:
    """Fetch the file of ``card`` into ``cache_dir``/key and return its table.

    ``base_url`` replaces scheme and host of the card's address, for a mirror.

    Raises DataNotFoundError when there is nothing to download or it did not arrive whole, DataError when what arrived
    is another table, ResourceError when the folder cannot be written; in every case without touching a cached file.
    """
    if card.url is None:
        raise DataNotFoundError(f"{card.key} cannot be downloaded; get it from {card.page}")
    url = card.url if base_url is None else base_url.rstrip("/") + urlsplit(card.url).path
    folder = cache_dir / card.key
    downloader = ResumingDownloader(folder / "download.zip.part", progress=progress)
    try:
        with _scratch(folder), _alone(folder):
            if (path := folder / card.files[0]).is_file():  # another process was faster
                return read_table(card, path)
            try:
                return _fetch(card, url, folder, downloader)
            except DataError as error:
                if isinstance(error, DataNotFoundError) or not downloader.resumed:
                    raise
                # The file may have changed at the source between two attempts: once more, from the start.
                return _fetch(card, url, folder, downloader)
    except DataNotFoundError:  # an OSError, too
        raise
    except OSError as error:
        raise ResourceError(f"{card.key}: the cache folder {folder} must be writable: {error}") from error


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[None]:
    """Make ``folder``; on the way out remove it, and two levels above it, as far as nothing else is there."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()
            folder.parent.parent.rmdir()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process downloads into ``folder``, where the system has such locks (not on Windows)."""
    try:
        fcntl = importlib.import_module("fcntl")
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        # A file system without locks is no reason to fail: what lands in the cache is verified all the same.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _fetch(card: Card, url: str, folder: Path, downloader: ResumingDownloader) -> Table:
    with _quiet(require("pooch")) as pooch:
        archive = Path(
            pooch.retrieve(url=url, known_hash=None, fname="download.zip", path=folder, downloader=downloader)
        )
    try:
        content = _member(card, archive, url)
        table = verify(parse_table(card, content, url), url)
    finally:
        archive.unlink()
    path = folder / card.files[0]
    _write_atomically(path, content)
    return replace(table, path=path)


@contextlib.contextmanager
def _quiet(pooch: Any) -> Iterator[Any]:
    """Pooch without its advice to pin a hash: the table's fingerprint is compared instead."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield pooch
    finally:
        logger.setLevel(level)


def _member(card: Card, archive: Path, url: str) -> bytes:
    """Bytes of the data file in ``archive``.  Only read, never unpacked to a path that the archive names."""
    wanted = {name.lower() for name in card.files}
    try:
        with zipfile.ZipFile(archive) as content:
            for member in content.infolist():
                if PurePosixPath(member.filename).name.lower() in wanted:
                    if member.file_size > _LARGEST_MEMBER_BYTES:
                        raise DataError(f"{card.key}: {member.filename} in {url} claims {member.file_size} bytes")
                    return content.read(member)
            names = ", ".join(repr(name) for name in content.namelist()[:5])
    # RuntimeError: encrypted; NotImplementedError (one of its kind): unknown compression.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(f"{card.key}: {url} must be a zip archive that holds {card.files[0]!r}: {error}") from error
    raise DataError(f"{card.key}: {url} must hold {card.files[0]!r}, got {names or 'an empty archive'}")


def _write_atomically(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
