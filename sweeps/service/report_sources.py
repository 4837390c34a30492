"""The tables that a report rests on: where they lie, what their manifests say, and which of them may stand on one page.

A table belongs to one study of one data set.  It lies in ``<folder>/<study>/<data set>/``, beside a manifest that names
both.  What was never run has no folder; that is no error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from adaptbin.config import ENCODER_VERSIONS, METHOD_VERSION, Hyperparameters, Protocol
from adaptbin.data.registry import get_card
from adaptbin.errors import ConfigError, DataError
from adaptbin.metrics import primary_metric
from sweeps.service.choice import CHOICE_FILE, CHOSEN_FIELDS, read_choice
from sweeps.service.methods_finetune import FINETUNE
from sweeps.service.notes import POINT, PRETEXTS_OF

_SCORES = ("dataset", "metric", "n", "n_diverged", "mean", "sd")
_CONTRAST = ("dataset", "metric", "n", "n_diverged", "difference", "statistic", "p_holm", "mark", "verdict")

TABLES: dict[str, dict[str, tuple[str, ...]]] = {
    "benchmark": {
        "table.csv": (
            *(*_SCORES, "binning", "masking", "objective", "status", "mask_prob", "t_init"),
            *("rank", "val_mean", "target_sd"),
        ),
    },
    "masking": {
        "points.csv": ("dataset", "metric", "n", "n_diverged", "test_mean", "test_sd", *CHOSEN_FIELDS, "chosen"),
    },
    "ablation": {
        "points.csv": (*_SCORES, "group", "variant", "changes"),
        "significance.csv": (*_CONTRAST, "group", "variant"),
    },
    FINETUNE: {
        "table.csv": (*_SCORES, "encoder", "method", "setting", "chosen", "n_missing"),
        "significance.csv": (*_CONTRAST, "encoder", "method", "against"),
    },
    "sensitivity": {
        "points.csv": (*_SCORES, "panel", "value", "is_default"),
        "significance.csv": (*_CONTRAST, "panel", "value"),
    },
    "variance": {
        "components.csv": ("dataset", "metric", "component", "variance", "sd", "sd_low", "sd_high", "share"),
        "points.csv": ("dataset", "metric", "seeds_vary", "n", "n_diverged", "mean", "sd"),
    },
    "architecture": {
        "points.csv": ("dataset", "metric", "n", "n_diverged", "depth", "width", "val_mean", "chosen", "paper"),
        "comparison.csv": ("dataset", "metric", "difference", "low", "high", "standard_error", "reproduced"),
    },
    "search": {
        "trials.csv": ("state",),
        "confirmation.csv": (
            *("dataset", "is_default", "winner", "search_mean", "val_mean", "test_mean", "test_sd", "n", "n_diverged"),
        ),
        "significance.csv": (*_CONTRAST, "trial", "test", "p", "low", "high"),
    },
    "alternatives": {"scores.csv": ("dataset", "model", "seed", "depends_on_seed", "metric", "val", "test")},
}
"""Study -> its tables that a report reads -> the columns they need.  Without the first of them it counts as not run."""

FULL = "full"
"""What a protocol is called that no note departs from."""


@dataclass(frozen=True)
class Source:
    """One folder of tables."""

    study: str
    datasets: tuple[str, ...]
    folder: Path
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        """``sensitivity of eol``."""
        return f"{self.study} of {'+'.join(self.datasets)}"

    @property
    def protocol(self) -> str:
        """How much was trained, in words: "full", or what the manifest's notes say of amounts and departures."""
        notes = [note for note in self.manifest.get("notes", []) if not note.startswith((POINT, PRETEXTS_OF))]
        return "; ".join(notes) or FULL

    @property
    def replicas(self) -> Mapping[str, int]:
        """How many replicas were `asked` for, `found` and `diverged`; empty where nothing was pretrained."""
        counts: Mapping[str, int] = self.manifest.get("replicas", {})
        return counts

    @cached_property
    def default(self) -> Hyperparameters:
        """The default point of a study of one data set.  Raises DataError when its manifest has none."""
        # Manifests of older results hold one default for all data sets.
        point = self.manifest.get("defaults", {}).get(self.datasets[0], self.manifest.get("default"))
        if point is None:
            raise DataError(f"the manifest of study {self.study} must have defaults, got {self.folder}")
        return Hyperparameters.from_dict(point)

    def table(self, file: str) -> pd.DataFrame | None:
        """Rows of the source's data sets; None where there is no such file.

        Raises DataError when it is no table, or lacks a column that a report reads.
        """
        path = self.folder / file
        if not path.is_file():
            return None
        try:
            frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
        except ValueError as error:  # also what pandas raises for an empty or ragged file
            raise DataError(f"a table must be a CSV file, got {path}: {error}") from error
        lacking = [name for name in TABLES[self.study].get(file, ()) if name not in frame]
        if lacking:
            raise DataError(f"a table of the {self.study} study must have columns {', '.join(lacking)}, got {path}")
        return frame[frame["dataset"].isin(self.datasets)] if "dataset" in frame else frame

    def require_fit(self, protocol: Protocol) -> None:
        """Raise ConfigError unless the tables are of this method version, ``protocol``, tables and primary metrics."""
        told = self.manifest
        checks: list[tuple[str, Any, Any]] = [
            # Manifests of older results do not tell it.
            ("method version", METHOD_VERSION, told.get("method_version", METHOD_VERSION))
        ]
        own = told.get("encoder_versions", {})
        checks += [
            (f"method version of {encoder}", version, own.get(encoder, METHOD_VERSION))
            for encoder, version in ENCODER_VERSIONS.items()
            if encoder in told.get("arms", {}).get("encoder", ())
        ]
        usual = Protocol.named("paper").to_dict()
        wanted, got = ({**usual, **settings} for settings in (protocol.to_dict(), told["protocol"]))
        checks += [(f"protocol's {name}", wanted.get(name), got[name]) for name in got]
        for dataset in self.datasets:
            card = get_card(dataset)
            fingerprint = told["tables"].get(dataset, {}).get("fingerprint")
            checks.append((f"fingerprint of the {dataset} table", card.fingerprint, fingerprint))
            metric = primary_metric(card.primary_metric, protocol)
            checks.append((f"primary metric of {dataset}", metric, told["metrics"].get(dataset)))
        for what, rule, found in checks:
            if found != rule:
                raise ConfigError(f"tables on a page must have its {what}, {rule}, got {found} in {self.folder}")
        if self.study == "masking" and (self.folder / CHOICE_FILE).is_file():
            choice = read_choice(self.folder / CHOICE_FILE)
            if choice.method_version != METHOD_VERSION or choice.protocol != protocol:
                raise ConfigError(f"a choice must be of the method version and protocol of its page, got {choice.path}")


@dataclass(frozen=True)
class Sources:
    """All that a report rests on."""

    datasets: tuple[str, ...]
    """Data sets asked for."""
    found: Mapping[tuple[str, str], Source]
    """Study and data set -> where its tables are."""
    left_out: tuple[Source, ...]
    """Tables of a study and data set that an earlier folder has, too."""

    def of(self, study: str) -> list[Source]:
        """Sources of a study, in the order of the data sets."""
        return [self.found[study, name] for name in self.datasets if (study, name) in self.found]

    def not_run(self, study: str) -> list[str]:
        """Data sets asked for that the study has no tables of."""
        return [name for name in self.datasets if (study, name) not in self.found]


def find_sources(folders: Sequence[Path], datasets: Sequence[str], protocol: Protocol) -> Sources:
    """Look for tables of ``datasets`` in ``folders``; of two of one kind the first counts.

    Raises ConfigError when a folder has none of them, or when a table that counts is of another method version,
    protocol, data or metric (see :meth:`Source.require_fit`); DataError when a manifest cannot be read.
    """
    found: dict[tuple[str, str], Source] = {}
    left_out = []
    for folder in dict.fromkeys(folders):
        there = list(_sources_in(folder))
        # Tables of several data sets repeat those of the single ones, which are always there, too.
        asked = [source for source in there if len(source.datasets) == 1 and source.datasets[0] in datasets]
        if not asked:
            has = f"tables of {', '.join(sorted({source.name for source in there}))} alone" if there else "none"
            raise ConfigError(
                f"a results folder must hold tables of {', '.join(TABLES)} (such as sensitivity/{datasets[0]}/"
                f"points.csv) for {', '.join(datasets)}, got {folder} with {has}"
            )
        for source in asked:
            if found.setdefault((source.study, source.datasets[0]), source) is not source:
                left_out.append(source)
    for source in found.values():
        source.require_fit(protocol)
    return Sources(tuple(datasets), found, tuple(left_out))


def _sources_in(folder: Path) -> Iterable[Source]:
    for path in sorted(folder.glob("*/*/manifest.json")):
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"a manifest must be a JSON file, got {path}: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("study") not in TABLES:
            continue  # of another program, or of a study that no report reads
        lacking = [name for name in ("tables", "protocol", "metrics") if name not in manifest]
        if lacking:
            raise DataError(f"the manifest of a study must have {', '.join(lacking)}, got {path}")
        study = manifest["study"]
        if (path.parent / next(iter(TABLES[study]))).is_file():
            yield Source(study, tuple(manifest["tables"]), path.parent, manifest)
