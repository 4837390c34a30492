"""Too little room for Ray's files is refused with what is there and what is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptbin.errors import ResourceError
from sweeps.service import space
from sweeps.service.space import require_space


def test_room_enough(tmp_path: Path) -> None:
    require_space(tmp_path, 2**20)
    assert list(tmp_path.iterdir()) == []


def test_shared_memory_goes_to_the_folder_when_it_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exabyte = 2**60
    with pytest.raises(
        ResourceError, match=r"must have \d+ MB free for Ray's logs and shared memory, for which /dev/shm"
    ):
        require_space(tmp_path, exabyte)
    monkeypatch.setattr(space, "SHARED", tmp_path / "absent")  # as on a system without it
    require_space(tmp_path, 2**20)


def test_a_full_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "FILES", 2**60)
    with pytest.raises(
        ResourceError, match=r"must have \d+ MB free for Ray's logs, got \d+ MB; remove something there"
    ):
        require_space(tmp_path, 2**20)
