"""A small made-up data set with every oddity of the real ones, so that readers and downloads need no real file."""

from __future__ import annotations

import dataclasses
import io
import zipfile

import numpy as np

from adaptbin.config import Architecture
from adaptbin.data import Card, Column
from adaptbin.data.readers import parse_table
from adaptbin.tasks import Task

FILE = "Toy Data.csv"
HEADER = ("id", "size", "answer", "grade", "ratio", "risk")
LEVELS = ("low", "mid", "high")


def cells() -> list[list[str]]:
    """41 rows, one of them without a ratio; the answers are words that pandas would take for missing values."""
    draw = np.random.default_rng(7)
    rows = [
        [
            str(i),
            f"{draw.normal(5, 2):.4f}",
            ("no", "NA", "None")[draw.integers(3)],
            str(draw.integers(8, 12)),
            f"{draw.random():.3f}",
            LEVELS[draw.integers(3)],
        ]
        for i in range(41)
    ]
    rows[13][4] = ""
    return rows


def text(header: tuple[str, ...] | None = HEADER, rows: list[list[str]] | None = None, end: str = "\n") -> str:
    lines = ([] if header is None else [list(header)]) + (cells() if rows is None else rows)
    return "".join(",".join(line) + end for line in lines)


def _card() -> Card:
    card = Card(
        key="toy",
        title="Toy",
        task=Task.ORDINAL,
        target="risk",
        columns=(
            Column(name="size", kind="numerical", unit="cm"),
            Column(name="answer", kind="categorical", text=True),
            Column(name="grade", kind="categorical"),
            Column(name="ratio", kind="numerical"),
        ),
        levels=LEVELS,
        primary_metric="qwk",
        architecture=Architecture(width=8, depth=1, batch_size=8),
        fingerprint="",
        rows=40,
        reader="csv",
        header=HEADER,
        aliases=(("RISK", "risk"), ("", "id")),
        incomplete="ratio",
        files=(FILE, "toy.csv"),
        licence="none",
        url="https://source.invalid/static/public/0/toy+data.zip",
        page="https://source.invalid/toy",
    )
    return dataclasses.replace(card, fingerprint=parse_table(card, text().encode(), "toy").fingerprint)


CARD = _card()


def archive(content: bytes | None = None, member: str = f"some folder/{FILE}") -> bytes:
    """A zip archive with a readme and the data file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("readme.txt", "about")
        file.writestr(member, text().encode() if content is None else content)
    return buffer.getvalue()
