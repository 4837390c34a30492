"""Where states are kept: a folder, and storage that machines share."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from moto.server import ThreadedMotoServer

from adaptbin.data import get_card
from adaptbin.errors import ConfigError, ResourceError
from sweeps.service.checkpoints import MEMBERS, STATE, FolderPlace, SentCheckpoint, StoragePlace, parse_members
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.plan import Pack, make_plan

STUDY = SensitivityStudy(cards=(get_card("breast_cancer"),), panels=get_panels(["tau"]), seeds=tuple(range(2)))
WHOLE = Pack(STUDY.all_replicas[:4])
PART = Pack(WHOLE.replicas[:2], resumes=(WHOLE.key,))
COUNT = itertools.count()
IDS = {pack.key: tuple(r.id for r in pack.replicas) for pack in (WHOLE, PART)}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Address of an empty bucket of a server that speaks S3, on loopback."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        address = f"s3://states/sweep%d?endpoint_override={host}:{port}&scheme=http"
        with urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/states", method="PUT")) as made:
            assert made.status == 200
        yield address
    server.stop()


@pytest.fixture(params=["folder", "storage", "file address", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "bucket":
        address = request.getfixturevalue("bucket") % next(COUNT)
        return StoragePlace(address)
    folder = tmp_path / "with a space" / "checkpoints"
    if request.param == "folder":
        return FolderPlace(folder)
    return StoragePlace(folder.as_uri() if request.param == "file address" else str(folder))


def save(place: Any, pack: Pack, content: bytes) -> None:
    place.of(pack).write(lambda stream: stream.write(content))


def states(place: Any, pack: Pack) -> list[bytes]:
    return [stream.read() for stream in place.of(pack).read()]


def test_a_state_is_found_by_its_pack_and_by_packs_cut_from_it(place: Any) -> None:
    assert place.begun() == {}
    assert states(place, WHOLE) == []
    save(place, WHOLE, b"old" * 1000)
    save(place, WHOLE, b"whole")
    assert states(place, PART) == [b"whole"]
    save(place, PART, b"part")
    assert states(place, PART) == [b"part", b"whole"]
    assert states(place, WHOLE) == [b"whole"]
    assert place.begun() == IDS
    place.forget(WHOLE.key)
    assert states(place, PART) == [b"part"]
    place.forget(PART.key)
    place.forget("nothing")
    assert place.begun() == {}


def test_a_write_that_fails_leaves_the_old_state(place: Any) -> None:
    def fail(stream: BinaryIO) -> None:
        stream.write(b"half")
        raise OSError("no")

    save(place, WHOLE, b"old")
    with pytest.raises(OSError, match="no"):
        place.of(WHOLE).write(fail)
    assert states(place, WHOLE) == [b"old"]


def test_newest_first(tmp_path: Path) -> None:
    for place in (FolderPlace(tmp_path), StoragePlace(str(tmp_path))):
        save(place, WHOLE, b"a")
        save(place, PART, b"b")
        for age, pack in ((100, PART), (200, WHOLE)):
            for path in (tmp_path / pack.key, tmp_path / pack.key / STATE, tmp_path / pack.key / MEMBERS):
                os.utime(path, (1e9 - age, 1e9 - age))
        assert list(place.begun()) == [PART.key, WHOLE.key]
        os.utime(tmp_path / WHOLE.key / STATE, (1e9, 1e9))
        assert list(place.begun()) == [WHOLE.key, PART.key]


def test_a_part_that_saved_nothing_yet_does_not_hide_the_state_of_the_whole(place: Any) -> None:
    save(place, WHOLE, b"whole")
    place.of(PART)  # begun, and then the machine died
    assert list(place.begun()) == [WHOLE.key, PART.key]
    plan = make_plan(STUDY, [r.id for r in STUDY.all_replicas[4:]], begun=place.begun())
    assert plan.packs == (WHOLE,)


def test_unreadable_folders_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / MEMBERS).write_text("{")
    assert FolderPlace(tmp_path).begun() == {"b": (), "a": ()} or FolderPlace(tmp_path).begun() == {"a": (), "b": ()}
    assert StoragePlace(str(tmp_path)).begun() == {"b": ()}
    assert [parse_members(text) for text in (b"[]", b"{}", b"[1]", b'["a"]', b"\xff")] == [(), (), (), ("a",), ()]


def test_storage_travels_by_its_address(tmp_path: Path) -> None:
    place = StoragePlace(str(tmp_path))
    save(place, WHOLE, b"x")
    assert states(pickle.loads(pickle.dumps(place)), WHOLE) == [b"x"]


def test_what_is_no_storage(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="storage must be an absolute folder or an address such as s3"):
        StoragePlace("relative/folder")
    StoragePlace(str(tmp_path)).require()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="storage must be writable, got .*/file/below"):
        StoragePlace(str(tmp_path / "file" / "below")).require()
    with pytest.raises(ResourceError, match="storage must be writable, got nonsense://x"):
        StoragePlace("nonsense://x").require()


def test_large_states_are_sent_whole() -> None:
    sent: list[bytes] = []
    kept = {"b": b"found"}

    def get(name: str) -> BinaryIO | None:
        return io.BytesIO(kept[name]) if name in kept else None

    checkpoint = SentCheckpoint(["a", "b"], get, lambda stream: sent.append(stream.read()))
    checkpoint.write(lambda stream: [stream.write(bytes(2**20)) for _ in range(70)])
    assert [len(content) for content in sent] == [70 * 2**20]
    assert [stream.read() for stream in checkpoint.read()] == [b"found"]
