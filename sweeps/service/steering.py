"""Talking to a sweep under way, through files in its output folder: no port, and nobody but who may write there.

``<output>/control/status.json`` tells how the sweep gets on.  A request is a file in ``requests``, its answer one of
the same name in ``answers``.  The command is :mod:`sweeps.service.control`.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from adaptbin.errors import AdaptBinError, ConfigError, ResourceError
from sweeps.service.files import write_text
from sweeps.service.point_fields import FIELDS, Value, value_text
from sweeps.service.work import Change

STATUS_SECONDS = 2.0
ANSWER_SECONDS = 30.0

Verb = Literal["add", "cancel"]

_WORDS = {word for field in FIELDS.values() for word in field.words}


@dataclass(frozen=True)
class Request:
    """One more value of a panel, of a side of a grid, or of t_max in an ablation; or one less."""

    verb: Verb
    panel: str
    value: Value

    @classmethod
    def parse(cls, verb: Verb, text: str) -> Self:
        """``tau=0.003``.  Raises ConfigError."""
        panel, equals, value = text.partition("=")
        if equals and value.strip() in _WORDS:
            return cls(verb, panel.strip(), value.strip())
        try:
            return cls(verb, panel.strip(), float(value))
        except ValueError:
            raise ConfigError(f"a point must be given as panel=value, such as tau=0.003, got {text!r}") from None

    def __str__(self) -> str:
        return f"{self.panel}={value_text(self.value)}"


class Steering:
    """The sweep's side: answers requests and tells its status.  A context manager."""

    def __init__(
        self, output: Path, answer: Callable[[Request], tuple[Change, str]], status: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._folder = output / "control"
        self._answer = answer
        self._status = status
        self._told = float("-inf")

    def __enter__(self) -> Self:
        for path in (*self._folder.glob("requests/*.json"), *self._folder.glob("answers/*.json")):
            path.unlink(missing_ok=True)  # asked of, or answered by, a sweep that is over
        (self._folder / "requests").mkdir(parents=True, exist_ok=True)
        self._tell()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            (self._folder / "status.json").unlink(missing_ok=True)

    @property
    def more(self) -> bool:
        """False: what nobody asks for does not come."""
        return False

    def changes(self) -> Sequence[Change]:
        """See :class:`sweeps.service.work.Steering`.  What is wrong with a request is told to who made it."""
        if time.monotonic() - self._told >= STATUS_SECONDS:
            self._tell()
        return [change for path in sorted(self._folder.glob("requests/*.json")) if (change := self._take(path))]

    def _tell(self) -> None:
        self._told = time.monotonic()
        with suppress(OSError):  # a full disk: results will tell
            write_text(self._folder / "status.json", json.dumps(self._status()))

    def _take(self, path: Path) -> Change | None:
        change = None
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(told, dict) or told.get("verb") not in get_args(Verb):
                raise ConfigError(f"a request must be one of {', '.join(get_args(Verb))}, got {told!r}")
            value = told["value"] if isinstance(told["value"], str) else float(told["value"])
            change, message = self._answer(Request(told["verb"], str(told["panel"]), value))
            answer = {"done": True, "message": message}
        except (AdaptBinError, OSError, ValueError, KeyError, TypeError, ArithmeticError) as error:
            answer = {"done": False, "message": str(error)}
        with suppress(OSError):
            path.unlink(missing_ok=True)
            write_text(self._folder / "answers" / path.name, json.dumps(answer))
        return change


def ask(output: Path, request: Request) -> str:
    """Ask the sweep that writes to ``output``; -> its answer.

    Raises ConfigError when it refuses, ResourceError when none is running there or it does not answer.
    """
    if read_status(output) is None:
        raise ResourceError(f"a sweep must be running there, got {output}")
    name = f"{time.time_ns()}-{uuid.uuid4().hex[:8]}.json"
    question = write_text(output / "control" / "requests" / name, json.dumps(asdict(request)))
    path = output / "control" / "answers" / name
    end = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < end:
        with suppress(OSError):
            answer = json.loads(path.read_text(encoding="utf-8"))
            path.unlink(missing_ok=True)
            if not answer["done"]:
                raise ConfigError(answer["message"])
            return str(answer["message"])
        time.sleep(0.1)
    question.unlink(missing_ok=True)
    raise ResourceError(f"the sweep must answer within {ANSWER_SECONDS:g} s, got nothing; is it starting or ending?")


def read_status(output: Path) -> dict[str, Any] | None:
    """How the sweep that writes to ``output`` gets on; None when none is training there."""
    import fcntl

    try:
        with open(output / ".lock", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                pass  # held, so somebody is at work
            else:
                return None
        status: dict[str, Any] = json.loads((output / "control" / "status.json").read_text(encoding="utf-8"))
        return status | {"age_seconds": max(0.0, time.time() - os.path.getmtime(output / "control" / "status.json"))}
    except (OSError, ValueError):
        return None
