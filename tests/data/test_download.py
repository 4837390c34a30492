"""Downloads from a local server: whole, cut, resumed, wrong, absent.  The cache gains a verified file or nothing."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adaptbin.data import ENVIRONMENT, Table, load_table
from adaptbin.data import download as module
from adaptbin.errors import DataError, DataNotFoundError, ResourceError
from tests.data import toy
from tests.data.server import Server, serving

PATH = "/static/public/0/toy+data.zip"
PART = "toy/download.zip.part"
CACHED = f"toy/{toy.FILE}"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as state:
        state.body = toy.archive()
        yield state


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def get(server: Server, cache: Path) -> Table:
    return load_table(toy.CARD, cache_dir=cache, base_url=server.url)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``, by relative name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_download_is_verified_cached_and_not_repeated(server: Server, cache: Path) -> None:
    first = get(server, cache)
    assert first.fingerprint == toy.CARD.fingerprint
    assert first.path == cache / CACHED
    assert tree(cache) == {CACHED: toy.text().encode()}
    assert get(server, cache).path == first.path
    assert server.asked == [(PATH, None)]


@pytest.mark.parametrize("length", [True, False])
def test_a_server_that_announces_no_length(length: bool, server: Server, cache: Path) -> None:
    server.announce_length = length
    assert get(server, cache).fingerprint == toy.CARD.fingerprint


def test_a_truncated_body_is_kept_and_continued(server: Server, cache: Path) -> None:
    server.truncate_after = 100
    with pytest.raises(
        DataNotFoundError, match="download failed: .*the first 100 bytes are kept, run again to continue"
    ):
        get(server, cache)
    assert tree(cache) == {PART: server.body[:100]}
    server.truncate_after = 50
    with pytest.raises(DataNotFoundError, match="the first 150 bytes are kept"):
        get(server, cache)
    server.truncate_after = None
    assert get(server, cache).fingerprint == toy.CARD.fingerprint
    assert tree(cache) == {CACHED: toy.text().encode()}
    assert [asked for _, asked in server.asked] == [None, "bytes=100-", "bytes=150-"]


def test_a_server_without_ranges_is_asked_for_all(server: Server, cache: Path) -> None:
    server.truncate_after, server.ranges = 100, False
    with pytest.raises(DataNotFoundError, match="the first 100 bytes are kept"):
        get(server, cache)
    server.truncate_after = None
    assert get(server, cache).fingerprint == toy.CARD.fingerprint
    assert [asked for _, asked in server.asked] == [None, "bytes=100-"]


def test_a_part_longer_than_the_file_starts_again(server: Server, cache: Path) -> None:
    part = cache / PART
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(len(server.body) + 10))
    assert get(server, cache).fingerprint == toy.CARD.fingerprint
    assert [asked for _, asked in server.asked] == [f"bytes={len(server.body) + 10}-", None]
    assert tree(cache) == {CACHED: toy.text().encode()}


def test_a_part_of_another_file_starts_again(server: Server, cache: Path) -> None:
    """The source changed between two attempts: the joined file is no table, so it is fetched once more, whole."""
    part = cache / PART
    part.parent.mkdir(parents=True)
    part.write_bytes(b"\xff" * 120)
    assert get(server, cache).fingerprint == toy.CARD.fingerprint
    assert [asked for _, asked in server.asked] == ["bytes=120-", None]


WRONG = {
    "another table": (
        toy.archive(toy.text(rows=toy.cells()[::-1]).encode()),
        "other values or another row order",
    ),
    "fewer rows": (toy.archive(toy.text(rows=toy.cells()[:-3]).encode()), "holds 37 complete rows"),
    "another file": (toy.archive(member="other.csv"), r"must hold 'Toy Data.csv', got 'readme.txt', 'other.csv'"),
    "no archive": (b"<html>sign in first</html>", "must be a zip archive that holds 'Toy Data.csv'"),
    "a damaged archive": (toy.archive().replace(b"answer", b"answex", 1), "must be a zip archive .* Bad CRC-32"),
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("before", [False, True], ids=["empty cache", "used cache"])
def test_a_wrong_file_is_refused_and_nothing_changes(fault: str, before: bool, server: Server, cache: Path) -> None:
    server.body, message = WRONG[fault]
    if before:
        (cache / "eol").mkdir(parents=True)
        (cache / "eol" / "there.csv").write_text("as it was")
    earlier = tree(cache)
    with pytest.raises(DataError, match=message) as caught:
        get(server, cache)
    assert not isinstance(caught.value, DataNotFoundError)
    assert str(caught.value).startswith(f"toy: {server.url}{PATH}")
    assert tree(cache) == earlier
    assert cache.exists() == before and not (cache / "toy").exists()
    assert len(server.asked) == 1


@pytest.mark.parametrize(("status", "reason"), [(404, "404 Not Found"), (503, "503 Service Unavailable")])
def test_an_error_of_the_server(status: int, reason: str, server: Server, cache: Path) -> None:
    server.status = status
    with pytest.raises(DataNotFoundError, match=f"toy: no data file. Put 'Toy Data.csv'.*the server answered {reason}"):
        get(server, cache)
    assert not cache.exists()


def test_an_error_keeps_what_was_there(server: Server, cache: Path) -> None:
    server.truncate_after = 100
    with pytest.raises(DataNotFoundError):
        get(server, cache)
    server.status = 404
    with pytest.raises(DataNotFoundError, match="404 Not Found; the first 100 bytes are kept"):
        get(server, cache)
    assert tree(cache) == {PART: server.body[:100]}


def test_offline(cache: Path) -> None:
    with serving() as gone:
        pass
    with pytest.raises(
        DataNotFoundError, match="download failed: .*ConnectionError.*need no file: breast_cancer, diab"
    ):
        get(gone, cache)
    assert not cache.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="POSIX paths")
def test_a_cache_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ResourceError, match="toy: the cache folder .*file/cache/toy must be writable: "):
        get(server, tmp_path / "file" / "cache")
    assert server.asked == []


def test_a_full_disk_leaves_no_trace(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write_atomically", lambda path, content: full("", path))
    with pytest.raises(ResourceError, match="must be writable: .*No space left on device"):
        get(server, cache)
    assert not cache.exists()


def test_an_interrupted_write_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        module._write_atomically(path, b"new")
    assert tree(tmp_path) == {"file": b"old"}


def test_a_member_that_claims_too_much(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST_MEMBER_BYTES", 10)
    with pytest.raises(DataError, match=r"toy: some folder/Toy Data.csv in http.* claims \d+ bytes"):
        get(server, cache)
    assert not cache.exists()


def test_member_names_never_become_paths(server: Server, cache: Path, tmp_path: Path) -> None:
    server.body = toy.archive(member=f"../../../{toy.FILE}")
    assert get(server, cache).path == cache / CACHED
    assert tree(tmp_path) == {f"cache/{CACHED}": toy.text().encode()}


def test_a_second_run_at_the_same_time_gets_the_same_file(server: Server, cache: Path) -> None:
    outcomes: list[str] = []
    threads = [threading.Thread(target=lambda: outcomes.append(get(server, cache).fingerprint)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [toy.CARD.fingerprint] * 4
    assert len(server.asked) == 1
    assert tree(cache) == {CACHED: toy.text().encode()}


def test_a_system_without_locks(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert get(server, cache).fingerprint == toy.CARD.fingerprint


def test_progress_and_silence(
    server: Server, cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pooch = logging.getLogger(__import__("pooch").get_logger().name)
    level = pooch.level
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    get(server, cache)
    shown = capsys.readouterr()
    assert "toy+data.zip: 100%" in shown.err and shown.out == ""
    assert "known_hash" not in shown.err and pooch.level == level
    (cache / CACHED).unlink()
    load_table(toy.CARD, cache_dir=cache, base_url=server.url, progress=False)
    assert capsys.readouterr().err == ""


def test_a_mirror_may_lie_below_a_path(server: Server, cache: Path) -> None:
    load_table(toy.CARD, cache_dir=cache, base_url=f"{server.url}/mirror/")
    assert server.asked == [(f"/mirror{PATH}", None)]


def test_nothing_to_download(cache: Path) -> None:
    card = dataclasses.replace(toy.CARD, url=None)
    with pytest.raises(DataNotFoundError, match="toy cannot be downloaded; get it from https://source.invalid/toy"):
        module.download(card, cache)
    assert not cache.exists()


def test_an_empty_archive(server: Server, cache: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    server.body = (tmp_path / "empty.zip").read_bytes()
    with pytest.raises(DataError, match="must hold 'Toy Data.csv', got an empty archive"):
        get(server, cache)
