"""``--export``: one replica as a folder that embeds or predicts new rows, with a card that says what it is.

A sweep keeps scores and no models.  The replica is trained again, which gives the same model, and its scores are held
against its result; where there is none yet, it is trained now and its result kept as a sweep would keep it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptbin.config import Replica
from adaptbin.data.sources import load_table
from adaptbin.data.table import Table
from adaptbin.errors import ConfigError, TrainingError
from adaptbin.metrics import primary_metric
from sweeps.service.card_view import show_cards
from sweeps.service.checkpoints import FolderPlace
from sweeps.service.files import write_text
from sweeps.service.manifest import TRAINED_ON, git_state
from sweeps.service.model_card import CARD_FILE, model_card
from sweeps.service.options import Options
from sweeps.service.plan import Pack
from sweeps.service.points import Study
from sweeps.service.results import ResultsStore
from sweeps.service.selecting import find_replica, name_of
from sweeps.service.work import threads, train_one

if TYPE_CHECKING:
    from adaptbin.data.encode import EncodedTable
    from adaptbin.data.own import Profile
    from adaptbin.training.checkpoint import Checkpoint
    from adaptbin.training.finetune import FineTuning
    from adaptbin.training.pretrain import Pretraining

_COMPARED = ("status", "diverged_at", "scores", "probes", "finetuning", "test_bootstrap_se", "bins", "n_rows", "unseen")
"""Parts of a record that the same replica has again."""


def export(options: Options, study: Study) -> int:
    """Export the replica that the options ask for, and say where it is; -> exit code of the script.

    It is trained in this process.  Raises ConfigError, before anything is trained, for several data sets, a point or
    seed that cannot be, and a folder that holds something else or, without ``--overwrite``, another model.
    """
    assert options.export is not None
    if len(study.datasets) != 1:
        raise ConfigError(f"--export takes a model of one data set, got {', '.join(study.datasets)}")
    (dataset,) = study.datasets
    store = ResultsStore(options.output)
    replica = find_replica(study, dataset, options.point, options.seed, store)
    _require_free(options.export, options.overwrite)
    point = name_of(study, replica)
    table = options.tables.get(dataset) or load_table(dataset, data_dir=options.data_dir)
    show_cards(options.cards, options.profiles)
    print(f"training {dataset}, point {point}, seed {replica.seed} ({replica.id})", flush=True)
    try:
        trained, is_new = _train(replica, table, store, options)
        profile = options.profiles.get(dataset)
        origin = _origin(replica, point, table, trained.record, profile)
        told = _write(trained, table, origin, options.export)
    except TrainingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    result = store.path(dataset, replica.id)
    print(f"its result is kept in {result}" if is_new else f"its scores are those of {result}")
    print(told)
    print(f"{dataset}: {options.export}")
    return 0


@dataclass
class _Trained:
    """A replica as it was trained."""

    replica: Replica
    encoded: EncodedTable
    record: Mapping[str, Any] = field(default_factory=dict)
    pretraining: Pretraining | None = None
    tuning: FineTuning | None = None

    def keep(self, pretrained: Sequence[Pretraining], tuned: Sequence[FineTuning]) -> None:
        """See :data:`adaptbin.training.pack.Trained`."""
        self.pretraining, self.tuning = next(iter(pretrained), None), next(iter(tuned), None)


def _require_free(folder: Path, overwrite: bool) -> None:
    from adaptbin.estimators.folder import MANIFEST

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"export must name a folder, got a file: {folder}")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / MANIFEST).is_file():
        raise ConfigError(
            f"export must name a folder that is new, empty, or holds a model, got other files in {folder}"
        )
    if not overwrite:
        raise ConfigError(
            f"export must name a new folder, got one that holds a model, {folder}; --overwrite replaces it"
        )


def _train(replica: Replica, table: Table, store: ResultsStore, options: Options) -> tuple[_Trained, bool]:
    """-> the replica, and whether it had no result before.  Raises TrainingError when it has one with other scores."""
    from adaptbin.data.encode import encode

    encoded = encode(table, split_seed=replica.seeds.split, unseen_category=replica.protocol.unseen_category)
    trained = _Trained(replica, encoded)
    if (known := store.read([replica]).records.get(replica.id)) is None:
        store.require_writable(f"results/{replica.dataset}", "checkpoints")
        with store.lock():
            place, pack = FolderPlace(store.output / "checkpoints"), Pack((replica,))
            trained.record = _train_one(trained, options.device, threads(options.resources.cpus), place.of(pack))
            store.write(trained.record)
            place.forget(pack.key)
    else:
        # Sums of another number of threads round differently.
        cores = known["runtime"].get("threads") or threads(options.resources.cpus)
        trained.record = _train_one(trained, options.device, cores, None)
        _require_same(trained.record, known, store.path(replica.dataset, replica.id))
    if trained.record["status"] == "diverged":
        raise TrainingError(f"a model must be finite, got one that diverged in epoch {trained.record['diverged_at']}")
    return trained, known is None


def _train_one(trained: _Trained, device: str, cores: int, checkpoint: Checkpoint | None) -> dict[str, Any]:
    from adaptbin.training.pack import train_pack

    (record,) = train_one(
        Pack((trained.replica,)),
        trained.encoded,
        device=device,
        threads=cores,
        checkpoint=checkpoint,
        git=git_state(),
        progress=lambda _: None,
        train=partial(train_pack, trained=trained.keep),
    )
    return record


def _require_same(record: Mapping[str, Any], known: Mapping[str, Any], path: Path) -> None:
    now, before = ({name: told.get(name) for name in _COMPARED} for told in (json.loads(json.dumps(record)), known))
    if (found := _difference(now, before)) is not None:
        where, here, there = found
        raise TrainingError(
            f"a replica trained again must be the one of its result, {path}, where {where} is {there}, got {here}; "
            f"there: {_trained_on(known)}; here: {_trained_on(record)} (other machines and versions round differently)"
        )


def _difference(one: Any, other: Any, where: str = "") -> tuple[str, Any, Any] | None:
    """The first place where plain values differ, and both of them."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        inside = [(f"{where} {key}", one.get(key), other.get(key)) for key in keys]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        inside = [(f"{where} {at}", a, b) for at, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else (where.strip(), one, other)
    return next((found for name, a, b in inside if (found := _difference(a, b, name)) is not None), None)


def _trained_on(record: Mapping[str, Any]) -> str:
    runtime = record["runtime"]
    versions = " ".join(f"{name} {version}" for name, version in runtime.get("versions", {}).items())
    return f"{runtime.get('kernels')} on {runtime.get('device')}, {runtime.get('threads')} threads, {versions}"


def _origin(
    replica: Replica, point: str, table: Table, record: Mapping[str, Any], profile: Profile | None
) -> dict[str, Any]:
    """What the model says of itself: everything that decided it, and what it scored."""
    card, columns = table.card, () if profile is None else profile.columns
    kept = ("scores", "test_bootstrap_se", "n_rows", "bins", "unseen", "finetuning")
    return {
        "replica": replica.id,
        "point": point,
        "seed": replica.seed,
        "identity": replica.identity(),
        "table": card.summary(),
        "target": {"name": card.target, "unit": card.target_unit, "levels": list(card.levels or ())},
        "missing_words": list(card.missing_words) if card.reader == "file" else None,
        "decimal_commas": [column.name for column in columns if column.decimal_commas],
        "thousands_points": [column.name for column in columns if column.thousands_points],
        "metric": primary_metric(card.primary_metric, replica.protocol),
        **{name: record[name] for name in kept if name in record},
        "trained_on": {name: record["runtime"].get(name) for name in TRAINED_ON},
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write(trained: _Trained, table: Table, origin: Mapping[str, Any], folder: Path) -> str:
    from adaptbin.estimators.exported import exported

    model, apart = exported(
        trained.replica, table, trained.encoded, trained.pretraining, trained.tuning, json.loads(json.dumps(origin))
    )
    model.save(folder)
    write_text(folder / CARD_FILE, model_card(model, table.card, folder.name))
    same = "the same bits as in training" if not apart else f"within {apart:.1g} of training's largest entry"
    return f"its embeddings of the {len(table.target)} rows: {same}"
