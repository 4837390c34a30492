"""Where the states of unfinished packs are kept: a folder of this machine, or storage that all machines share.

Each pack has a folder named by its key, with the ids of its replicas and its state.  (On a cluster without shared
storage states travel to the driver's folder: :mod:`sweeps.service.launch.keeper`.)
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from adaptbin.errors import ConfigError, ResourceError
from sweeps.service.files import write_text
from sweeps.service.plan import Pack

if TYPE_CHECKING:
    from adaptbin.training.checkpoint import Checkpoint

MEMBERS = "replicas.json"
"""File in a pack's folder that lists the ids of its replicas."""

STATE = "pack.pt"

TRY = "try-"
"""What the names of folders begin with that are only made to see whether they can be."""

SPOOL_BYTES = 64 * 2**20
"""States up to this size are put together in memory before they are sent, larger ones in a temporary file."""


class CheckpointPlace(Protocol):
    """Keeps states by pack; can be sent to workers."""

    def of(self, pack: Pack) -> Checkpoint:
        """The pack's checkpoint; called where the pack is trained, when it begins."""

    def begun(self) -> dict[str, tuple[str, ...]]:
        """Key -> replica ids of every pack that was begun: those with a state first, and of them the newest.

        Unreadable ones have no ids.
        """

    def forget(self, key: str) -> None:
        """Remove the state of the pack of that key."""


@dataclass(frozen=True)
class FolderPlace:
    """A folder of this machine."""

    folder: Path

    def of(self, pack: Pack) -> Checkpoint:
        """See :class:`CheckpointPlace`."""
        from adaptbin.training.checkpoint import FolderCheckpoint

        with suppress(OSError):  # a checkpoint is a precaution: without it training goes on
            write_text(self.folder / pack.key / MEMBERS, members_of(pack))
        return FolderCheckpoint(self.folder / pack.key, *(self.folder / key for key in pack.resumes))

    def begun(self) -> dict[str, tuple[str, ...]]:
        """See :class:`CheckpointPlace`."""
        found = []
        for folder in self.folder.glob("*/"):
            with suppress(OSError):
                changed = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
                found.append(((folder / STATE).is_file(), changed, folder.name))
        return {key: self._ids(key) for _, _, key in sorted(found, reverse=True)}

    def forget(self, key: str) -> None:
        """See :class:`CheckpointPlace`."""
        shutil.rmtree(self.folder / key, ignore_errors=True)

    def _ids(self, key: str) -> tuple[str, ...]:
        with suppress(OSError):
            return parse_members((self.folder / key / MEMBERS).read_bytes())
        return ()


@dataclass(frozen=True)
class StoragePlace:
    """Storage that every machine reaches by the same address: an absolute folder, or a bucket as s3://name/folder.

    Raises ConfigError when the address is neither.  Needs pyarrow, which comes with Ray Tune; credentials of buckets
    are taken from the environment of whoever opens them.
    """

    address: str

    def __post_init__(self) -> None:
        if "://" not in self.address and not self.address.startswith("/"):
            raise ConfigError(
                f"storage must be an absolute folder or an address such as s3://..., got {self.address!r}"
            )

    def below(self, name: str) -> StoragePlace:
        """A folder of that name in it."""
        return StoragePlace(f"{self.address.rstrip('/')}/{name}")

    def of(self, pack: Pack) -> Checkpoint:
        """See :class:`CheckpointPlace`."""
        with suppress(OSError):
            self.put(f"{pack.key}/{MEMBERS}", io.BytesIO(members_of(pack).encode()))
        return SentCheckpoint(
            [f"{key}/{STATE}" for key in (pack.key, *pack.resumes)],
            get=self.get,
            put=lambda state: self.put(f"{pack.key}/{STATE}", state),
        )

    def begun(self) -> dict[str, tuple[str, ...]]:
        """See :class:`CheckpointPlace`."""
        from pyarrow import fs

        files, root = self._opened
        found = files.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
        changed: dict[str, float] = {}
        with_state: set[str] = set()
        for info in found:
            key, _, name = info.path.removeprefix(root).strip("/").partition("/")
            if name == STATE:
                with_state.add(key)
            if name in (MEMBERS, STATE) and not key.startswith(TRY):  # else another sweep looks whether it can write
                changed[key] = max(changed.get(key, 0.0), info.mtime_ns or 0)
        newest_first = sorted(changed, key=lambda key: (key in with_state, changed[key]), reverse=True)
        members = {key: self.get(f"{key}/{MEMBERS}") for key in newest_first}
        return {key: () if file is None else parse_members(file.read()) for key, file in members.items()}

    def forget(self, key: str) -> None:
        """See :class:`CheckpointPlace`."""
        files, root = self._opened
        with suppress(OSError):
            files.delete_dir(f"{root}/{key}")

    def get(self, name: str) -> BinaryIO | None:
        """A file by its name below the address; None when it is not there."""
        files, root = self._opened
        try:
            return cast(BinaryIO, files.open_input_file(f"{root}/{name}"))
        except FileNotFoundError:
            return None

    def put(self, name: str, content: BinaryIO) -> None:
        """Write or replace a file in one step."""
        files, root = self._opened
        path = f"{root}/{name}"
        # An object of a bucket appears when it is closed; a file must be renamed to.
        is_folder = files.type_name == "local"
        target = f"{path}.{uuid.uuid4().hex}.tmp" if is_folder else path
        if is_folder:
            files.create_dir(path.rpartition("/")[0])
        with files.open_output_stream(target) as stream:
            shutil.copyfileobj(content, stream, 2**20)
        if is_folder:
            files.move(target, path)

    def require(self) -> None:
        """Raise ResourceError unless files can be written, read and removed there."""
        name = f"{TRY}{uuid.uuid4().hex}"
        try:
            self.put(f"{name}/{MEMBERS}", io.BytesIO(b"[]"))
            found = self.get(f"{name}/{MEMBERS}")
            if found is None or found.read() != b"[]":
                raise OSError("what was written there cannot be read")
        except (OSError, ValueError, ImportError) as error:
            raise ResourceError(f"storage must be writable, got {self.address}: {error}") from error
        finally:
            with suppress(OSError, ValueError, ImportError):
                self.forget(name)

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        from pyarrow import fs

        files, root = fs.FileSystem.from_uri(self.address)
        return files, root.rstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}  # a connection stays where it was made


@dataclass(frozen=True)
class SentCheckpoint:
    """A pack's state that is put together here and kept elsewhere."""

    names: list[str]
    """What to look for, the best first."""
    get: Callable[[str], BinaryIO | None]
    put: Callable[[BinaryIO], None]

    def read(self) -> Iterator[BinaryIO]:
        """States to go on from: the pack's own, then those of packs it was cut from."""
        for name in self.names:
            found = None
            with suppress(OSError):
                found = self.get(name)
            if found is not None:
                with found:
                    yield found

    def write(self, write: Callable[[BinaryIO], None]) -> None:
        """Replace the state in one step: only a whole one is sent."""
        with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as file:
            write(cast(BinaryIO, file))
            file.seek(0)
            self.put(cast(BinaryIO, file))


def members_of(pack: Pack) -> str:
    """Content of a pack's ``MEMBERS``."""
    return json.dumps([replica.id for replica in pack.replicas])


def parse_members(content: bytes) -> tuple[str, ...]:
    """Inverse of :func:`members_of`; empty when the content is not that."""
    try:
        ids = json.loads(content)
    except ValueError:
        return ()
    return tuple(ids) if isinstance(ids, list) and all(isinstance(name, str) for name in ids) else ()
