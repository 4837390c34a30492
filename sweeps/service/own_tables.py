"""Own tables on the command line: which options tell of them, and what a run makes of these.

A table is read once, when the options are; its card stands beside those of the registry from then on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptbin.data.card_file import CardFile, card_text, read_card_file
from adaptbin.data.files import is_table_file
from adaptbin.data.own import Asked, Profile, read_own_table
from adaptbin.data.registry import CARDS, Card, get_card
from adaptbin.errors import ConfigError, unknown
from sweeps.service.files import write_text

if TYPE_CHECKING:
    from adaptbin.data.table import Table

OWN_OPTIONS = (
    "target",
    "card",
    "write_card",
    "groups",
    "split_file",
    "test_file",
    "drop",
    "ordinal",
    "positive",
    "name",
)
"""Names of the options that tell of own tables."""
OF_ONE = ("card", "write_card", "split_file", "test_file", "name")
"""Those that can be of one table only."""


@dataclass(frozen=True, kw_only=True)
class DataSets:
    """All data sets that a run asks for, registered ones and own ones."""

    cards: Mapping[str, Card]
    """Key -> card, in the order asked for."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    """Key -> table, of own ones."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Key -> what was found out, of own ones."""


def split_names(text: str, everything: Sequence[str]) -> tuple[str, ...]:
    """Keys of registered data sets and paths of own tables, from one value of ``--dataset``.

    Names are parted by commas or spaces, paths by commas alone; "all" is ``everything``.  Raises ConfigError for a word
    that is neither.
    """
    if Path(text.strip()).expanduser().is_file():
        return (text.strip(),)
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if is_path(part):
            found.append(part)
            continue
        for word in part.split():
            key = word.lower()
            if is_path(word):
                found.append(word)
            elif key == "all":
                found.extend(everything)
            elif key in CARDS:
                found.append(key)
            else:
                raise ConfigError(
                    f"{unknown('data set', word, [*CARDS, 'all'])}; a table of your own is named by its file"
                )
    if not found:
        raise ConfigError(f"data set must be one of {', '.join(CARDS)}, a file or all, got {text!r}")
    return tuple(found)


def is_path(name: str) -> bool:
    """Whether a value of ``--dataset`` is a file's: no registered name, and a path or a name that ends as tables do."""
    if name.lower() in CARDS:
        return False
    return bool(re.search(r"[/\\]", name)) or is_table_file(Path(name)) or Path(name).expanduser().is_file()


def read_data_sets(names: Sequence[str], given: Mapping[str, Any]) -> DataSets:
    """Cards of all ``names``, and the own tables among them.

    ``given``: values of :data:`OWN_OPTIONS`, by name.  Raises ConfigError for options that no own table is there
    for, or more than one, and what :func:`adaptbin.data.own.read_own_table` raises.
    """
    paths = [name for name in names if is_path(name)]
    told = {name: given[name] for name in OWN_OPTIONS if given.get(name) not in (None, ())}
    if told and not paths:
        raise ConfigError(
            f"{_option(next(iter(told)))} is for a table of your own, which --dataset must name by its file"
        )
    several = [name for name in OF_ONE if name in told]
    if several and len(paths) > 1:
        raise ConfigError(f"{_option(several[0])} is for one table of your own, got {', '.join(paths)}")
    cards: dict[str, Card] = {}
    tables, profiles = {}, {}
    for name in names:
        if name not in paths:
            cards[name] = get_card(name)
            continue
        own = read_own_table(Path(name).expanduser(), _asked(told))
        key = own.table.card.key
        if key in cards:
            raise ConfigError(f"data sets must have different names, got {key!r} for {name} and another; see --name")
        cards[key], tables[key], profiles[key] = own.table.card, own.table, own.profile
    return DataSets(cards=cards, tables=tables, profiles=profiles)


def write_asked_card(path: Path | None, cards: Mapping[str, Card], profiles: Mapping[str, Profile]) -> None:
    """Write the card of the own table where ``--write-card`` says, if it does.

    Raises ConfigError where another file is there: a card that was edited, or a table.
    """
    if path is not None:
        ((key, profile),) = profiles.items()
        path, text = path.expanduser(), card_text(cards[key], profile.columns, fingerprint=False)
        if path.exists() and not (path.is_file() and path.read_bytes() == text.encode()):
            raise ConfigError(f"--write-card must name a new file, got one that is there, {path}")
        write_text(path, text)


def write_cards(
    folder: Path, data_sets: Sequence[str], cards: Mapping[str, Card], profiles: Mapping[str, Profile]
) -> list[Path]:
    """Keep the cards of own tables with results: ``card.yaml``, or ``card_<key>.yaml`` beside other data sets."""
    return [
        write_text(
            folder / ("card.yaml" if len(data_sets) == 1 else f"card_{key}.yaml"),
            card_text(cards[key], profiles[key].columns, fingerprint=True),
        )
        for key in data_sets
        if key in profiles
    ]


def _asked(told: Mapping[str, Any]) -> Asked:
    card = read_card_file(told["card"].expanduser()) if "card" in told else CardFile()
    files = {name: told[name].expanduser() for name in ("split_file", "test_file") if name in told}
    texts = {name: told[name] for name in ("target", "groups", "ordinal", "positive", "name") if name in told}
    drop = tuple(name.strip() for value in told.get("drop", ()) for name in value.split(","))
    return Asked(card=card, drop=drop, **files, **texts)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
