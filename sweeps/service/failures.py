"""Replicas that could not be trained, as files: ``<output>/failures/<data set>/<replica id>.json``.

An error of the training would come again, so what failed is not tried again until somebody asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from adaptbin.config import Replica
from sweeps.service.files import write_text
from sweeps.service.points import point_of
from sweeps.service.work import Failure


@dataclass(frozen=True)
class FailureLog:
    """The failures of one output folder."""

    output: Path

    def write(self, replicas: Iterable[Replica], failure: Failure) -> None:
        """Note why these replicas have no result."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        for replica in replicas:
            told = {"id": replica.id, "identity": replica.identity(), "failed_at": now, **failure.to_dict()}
            write_text(self._path(replica), json.dumps(told))

    def read(self, replicas: Iterable[Replica]) -> dict[str, Failure]:
        """Replica id -> failure, of those that have one; a file that cannot be read counts as none."""
        found = {}
        for replica in replicas:
            try:
                told = json.loads(self._path(replica).read_text(encoding="utf-8"))
                found[replica.id] = Failure(str(told["reason"]), str(told["detail"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def clear(self, records: Iterable[Mapping[str, object]]) -> None:
        """Forget the failures of replicas that have a record now."""
        for record in records:
            identity = record["identity"]
            assert isinstance(identity, Mapping)
            (self._folder(str(identity["dataset"])) / f"{record['id']}.json").unlink(missing_ok=True)

    def _path(self, replica: Replica) -> Path:
        return self._folder(replica.dataset) / f"{replica.id}.json"

    def _folder(self, dataset: str) -> Path:
        return self.output / "failures" / dataset


def what_is_missing(missing: Sequence[Replica], asked: int, failures: Mapping[str, Failure]) -> str:
    """Which of the replicas asked for have no result, and why."""
    lines = [f"{len(missing)} of {asked} replicas have no result:"]
    kinds = {replica.seeds_vary for replica in missing}
    groups: dict[tuple[str, str, str], list[Replica]] = {}
    for replica in missing:
        failure, kind = failures.get(replica.id), f" that vary the {replica.seeds_vary}" if len(kinds) > 1 else ""
        groups.setdefault((replica.dataset, failure.reason if failure else "", kind), []).append(replica)
    for (dataset, reason, kind), replicas in groups.items():
        seeds = ", ".join(map(str, sorted({replica.seed for replica in replicas})))
        count = len({point_of(replica) for replica in replicas})
        points = f"{count} point{'' if count == 1 else 's'}"
        why = f"failed: {reason}" if reason else "not trained; the same command goes on with them"
        lines.append(f"  {dataset}: {len(replicas)} replicas ({points}, seeds {seeds}{kind}): {why}")
    if failures:
        lines.append("what failed is trained again with --retry-failed")
    return "\n".join(lines)
