"""Which replica is meant by ``--point`` and ``--seed``: the default point, one some fields away from it, or an id."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from adaptbin.config import Architecture, Budget, Hyperparameters, Replica
from adaptbin.errors import ConfigError, nearest, unknown
from sweeps.service.points import Point, Study
from sweeps.service.projection import describe_point, point_settings
from sweeps.service.results import ResultsStore

DEFAULT = "default"
"""What the default point is called, as in MLflow."""

_ID = re.compile(r"(?:(?:point|replica):)?([0-9a-f]{6,24})")
"""An id or its beginning, as result files and tables have it, or with its kind, as MLflow does."""

_PARTS: dict[type[Hyperparameters] | type[Architecture] | type[Budget], tuple[str, ...]] = {
    Hyperparameters: tuple(field.name for field in fields(Hyperparameters)),
    Architecture: tuple(field.name for field in fields(Architecture) if field.name != "encoder_settings"),
    Budget: ("epochs",),
}
"""Settings of a point -> those that can be given by hand."""

_BESIDE = (*_PARTS[Architecture], *_PARTS[Budget])
"""Those that are no hyperparameters."""


def find_replica(study: Study, dataset: str, asked: str | None, seed: int | None, store: ResultsStore) -> Replica:
    """The replica of a data set that is asked for; it need not be one that the study trains.

    ``asked``: None or "default"; pairs as ``w_sord=3,tau=0.001``, relative to the data set's default point; or the id
    of a replica or point, or its first six digits or more: of this study, or of any replica with a result in ``store``.
    ``seed``: None takes the study's first one, or that of the replica whose id was given.

    Raises ConfigError for a field that is not known or a value that cannot be, with the nearest; for an id that names
    nothing or several; and for another seed than that of the replica named.
    """
    text = (asked or DEFAULT).strip()
    if match := _ID.fullmatch(text.lower()):
        found = _named(study, dataset, match[1], store)
        if isinstance(found, Replica):
            if seed not in (None, found.seed):
                raise ConfigError(f"seed must be that of replica {found.id}, {found.seed}, or left out, got {seed}")
            return found
    else:
        found = _moved(study, dataset, text)
    return study.replica(study.card(dataset), found, study.seeds[0] if seed is None else seed)


def name_of(study: Study, replica: Replica) -> str:
    """How a replica's point is called: by what it changes of the data set's default point, as in MLflow."""
    default = study.default_point_of(replica.dataset).settings(_BESIDE)
    return describe_point(point_settings(replica.identity(), _BESIDE), default).name


def _named(study: Study, dataset: str, beginning: str, store: ResultsStore) -> Replica | Point:
    own: dict[str, Replica | Point] = {}
    own |= {describe_point(p.settings(study.moved), {}).key: p for p in study.points_of(dataset)}
    own |= {replica.id: replica for replica in study.replicas[dataset]}
    folder = store.path(dataset, beginning).parent
    results = {path.stem: path for path in folder.glob(f"{beginning}*.json")}
    names = sorted({*results, *(name for name in own if name.startswith(beginning))})
    if not names:
        raise ConfigError(
            "point must be fields and values, or the id of a point or replica of this study or of a result in "
            f"{folder}, got {beginning!r}"
        )
    if len(names) > 1:
        raise ConfigError(f"an id's beginning must name one point or replica, got {beginning!r}: {', '.join(names)}")
    return own[names[0]] if names[0] in own else _replica_in(results[names[0]])


def _replica_in(path: Path) -> Replica:
    try:
        replica = Replica.from_identity(json.loads(path.read_text(encoding="utf-8"))["identity"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"a result must be that of a replica, got {path}: {error}") from error
    if replica.id != path.stem:
        raise ConfigError(f"a result must be that of the replica it is named after, got {replica.id} in {path}")
    return replica


def _moved(study: Study, dataset: str, text: str) -> Point:
    pairs = [] if text == DEFAULT else [_pair(pair) for pair in text.split(",")]
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ConfigError(f"each field of a point must be given once, got {text!r}")
    own = {kind: {name: values[name] for name in names if name in values} for kind, names in _PARTS.items()}
    base = study.base_of(dataset, values.get("pretext"))
    point = study.point(dataset, replace(base.hyperparameters, **own[Hyperparameters]))
    return replace(
        point,
        architecture=replace(base.architecture, **own[Architecture]),
        budget=replace(point.budget, **own[Budget]),
    )


def _pair(text: str) -> tuple[str, Any]:
    """``tau = 0.003`` as name and value."""
    name, equals, value = (part.strip() for part in text.partition("="))
    known = [known for names in _PARTS.values() for known in names]
    if equals and name not in known:
        raise ConfigError(unknown("field of a point", name, known))
    if not equals or not value:
        raise ConfigError(f"a point must be given as field=value pairs such as w_sord=3,tau=0.001, got {text!r}")
    kind = next(get_type_hints(kind)[name] for kind, names in _PARTS.items() if name in names)
    if choices := get_args(kind):
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}{nearest(value, choices)}")
        return name, value
    try:
        number = float(value)
    except ValueError:
        raise ConfigError(f"{name} must be a {'whole ' if kind is int else ''}number, got {value!r}") from None
    return name, int(number) if kind is int and number.is_integer() else number
