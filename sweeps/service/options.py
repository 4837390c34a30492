"""What a command line asks for: resolved, and checked before anything is read, trained or written.

A script has the options of all scripts and some of its own; those it has not keep the values they have in `Options`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adaptbin.config import Budget, EncoderName, Finetuning, Hyperparameters, Protocol, SeedsVary
from adaptbin.data.registry import Card
from adaptbin.errors import ConfigError
from adaptbin.metrics import get_metric, metrics_of, primary_metric
from sweeps.service.command_line import flat_names, parse_words
from sweeps.service.grid import DEFAULT_MASK_PROB, MASK_PROBS, T_INITS
from sweeps.service.methods_finetune import ENCODERS
from sweeps.service.own_grids import OwnGrid
from sweeps.service.own_tables import read_data_sets, write_asked_card
from sweeps.service.panel_words import chosen_grids, panels_asked
from sweeps.service.panels import PANELS
from sweeps.service.parameters import PRESETS, parameters
from sweeps.service.parameters_search import SearchOptions, resolve_search
from sweeps.service.plan import Resources
from sweeps.service.point_fields import Value
from sweeps.service.points import AskedTest
from sweeps.service.stores import without_password
from sweeps.service.switches import protocol_of

if TYPE_CHECKING:
    from adaptbin.data.own import Profile
    from adaptbin.data.table import Table


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person asked for, resolved and checked."""

    cards: Mapping[str, Card]
    """Card of every data set asked for, by key, in that order."""
    preset: str
    seeds: tuple[int, ...]
    seeds_vary: SeedsVary
    budget: Budget
    protocol: Protocol
    pack: int | None
    resources: Resources
    device: str
    """"cpu" or "cuda"."""
    address: str | None
    storage: str | None
    """Folder or bucket of checkpoints that all machines share."""
    data_dir: Path | None
    output: Path
    root: Path
    """Folder whose ``mlruns`` is MLflow's own default place."""
    tracking_uri: str | None
    time_limit: float | None
    """Seconds from now to the end of the sweep."""
    plan: bool
    retry_failed: bool
    rebuild: bool
    given: Mapping[str, Any]
    """The options as typed, for the manifest."""

    tables: Mapping[str, Table] = field(default_factory=dict)
    """Own tables among the data sets, already read."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """What was found out about these."""

    # Not every script has these.
    panels: tuple[str, ...] = ()
    grids: tuple[OwnGrid, ...] = ()
    """Own panels in place of the paper's."""
    values: tuple[tuple[str, Value], ...] = ()
    """Further values of panels: panel and value."""
    default: Hyperparameters = Hyperparameters()
    choice_from: Path | None = None
    """Where each data set's default point was chosen; see :mod:`sweeps.service.choice`."""
    test: AskedTest = "wilcoxon"
    metric: str | None = None
    """Metric asked for; None shows each data set's primary one."""
    show_test: bool = False
    """Whether test scores of points that were not chosen are shown."""
    refine_every: int | None = None
    """Epochs between refinements of the ablation w/o FPT; None: patience + 1."""
    t_max: tuple[int, ...] | None = None
    """T_max of further ablations; None: the usual ones."""
    encoders: tuple[EncoderName, ...] = ()
    """Encoders to train."""
    finetuning: Finetuning | None = None
    """How models are trained on labels; None where the script fine-tunes none."""
    depths: tuple[int, ...] | None = None
    """Depths to choose from; None: the paper's."""
    widths: tuple[int, ...] | None = None
    """Widths to choose from; None: the paper's."""
    mask_probs: tuple[float, ...] = MASK_PROBS
    """p_m to choose from, ascending."""
    t_inits: tuple[int, ...] = T_INITS
    """T and T_init to choose from, ascending."""
    export: Path | None = None
    """Folder for the model of one replica, which is then all that is done."""
    point: str | None = None
    """The point to export, see :func:`sweeps.service.selecting.find_replica`; likewise the next one."""
    seed: int | None = None
    overwrite: bool = False
    """Whether a model in that folder may be replaced."""
    search: SearchOptions | None = None
    """What is asked of a search; None in every other script."""

    @property
    def datasets(self) -> tuple[str, ...]:
        """Keys of the data sets asked for."""
        return tuple(self.cards)

    @property
    def primary(self) -> dict[str, str]:
        """Primary metric of every data set."""
        return {name: primary_metric(card.primary_metric, self.protocol) for name, card in self.cards.items()}

    @property
    def metrics(self) -> dict[str, str]:
        """Metric to test and draw, of every data set."""
        return {name: self.metric or primary for name, primary in self.primary.items()}


def parse_options(
    argv: Sequence[str] | None = None, *, prog: str, about: str, own_options: Iterable[click.Parameter] = ()
) -> Options | None:
    """Options of a command line (``sys.argv`` by default); None when it only asked for help, which is then printed.

    ``own_options``: what the script has besides the options of all, see :mod:`sweeps.service.parameters`.

    Raises ConfigError with one clear line for whatever is unknown, missing or out of range.
    """
    given = parse_words(argv, prog=prog, about=about, options=parameters(own_options))
    return None if given is None else _resolve(given)


def repository_root() -> Path:
    """Folder of the checkout these scripts are in (it holds ``pyproject.toml``), else the working directory."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() else Path.cwd()


def output_folder(given: Path | None) -> Path:
    """The output that was asked for, absolute; by default ``mlruns`` of the checkout."""
    folder: Path = _or(given, repository_root() / "mlruns")
    return folder.expanduser().resolve()


def _resolve(given: Mapping[str, Any]) -> Options:
    if "grid" in given:
        given = {**given, **panels_asked(given)}
    if given["plan"] and given["rebuild"]:
        raise ConfigError("at most one of --plan and --rebuild may be given, got both")
    if given["budget"] is not None and given["rebuild"]:
        raise ConfigError("--rebuild trains nothing, so it takes no --budget, got both")
    preset = PRESETS[given["preset"]]
    resources, device = _resources(given)
    data_sets = read_data_sets(flat_names(given["dataset"]), given)
    options = Options(
        cards=data_sets.cards,
        tables=data_sets.tables,
        profiles=data_sets.profiles,
        preset=given["preset"],
        seeds=_or(given["seeds"], tuple(range(preset.seeds))),
        seeds_vary=given.get("seeds_vary", "pretrain"),
        budget=Budget(
            epochs=_or(given.get("epochs"), preset.epochs),
            probe_epochs=_or(given.get("probe_epochs"), preset.probe_epochs),
            probes=given.get("probes", Budget().probes),
        ),
        protocol=protocol_of(given),
        pack=given["pack"],
        resources=resources,
        device=device,
        address=given["address"],
        storage=given["storage"],
        data_dir=given["data_dir"],
        output=output_folder(given["output"]),
        root=repository_root(),
        tracking_uri=given["tracking_uri"],
        time_limit=given["budget"],
        plan=given["plan"],
        retry_failed=given["retry_failed"],
        rebuild=given["rebuild"],
        given=_as_typed(given) | {"dataset": list(data_sets.cards)},
        **_own(given),
    )
    _check(options)
    write_asked_card(given["write_card"], options.cards, options.profiles)
    return options


def _check(options: Options) -> None:
    if options.pack is not None and options.pack < 1:
        raise ConfigError(f"pack must be a whole number >= 1, got {options.pack}")
    if options.budget.epochs < 1:  # a budget may be of no pretraining, but nobody asks for that by hand
        raise ConfigError(f"epochs must be a whole number >= 1, got {options.budget.epochs}")
    _check_export(options)
    for name, table in options.tables.items():
        if options.seeds_vary == "split" and table.parts is not None:
            raise ConfigError(f"{name} has a split of its own, which seeds cannot vary, got --seeds-vary split")
    if options.metric is not None:
        for name, card in options.cards.items():
            task = card.task
            if task not in get_metric(options.metric).tasks:
                raise ConfigError(
                    f"metric must be one that {name} ({task}) has: {', '.join(metrics_of(task))}, "
                    f"got {options.metric!r}"
                )


def _check_export(options: Options) -> None:
    if options.export is None:
        for name, left_out in (("point", None), ("seed", None), ("overwrite", False)):
            if getattr(options, name) is not left_out:
                raise ConfigError(f"--{name} says what --export exports, so it needs that, got --{name} alone")
        return
    for name, asked in (("plan", options.plan), ("rebuild", options.rebuild), ("budget", options.time_limit)):
        if asked:
            raise ConfigError(f"--export trains one replica and nothing else, so it takes no --{name}, got both")


_OWN = ("choice_from", "test", "metric", "show_test", "refine_every", "t_max", "export", "point", "seed", "overwrite")
"""Options of some scripts whose values are taken as they are."""


def _own(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of :class:`Options` that this script has options for, and others have not."""
    own = {name: given[name] for name in _OWN if name in given}
    for name in ("choice_from", "export"):
        if own.get(name) is not None:
            own[name] = own[name].expanduser().resolve()
    if "panel" in given:
        asked, grids = flat_names(given["panel"]), flat_names(given["grid"])
        if grids:
            own["grids"] = chosen_grids(grids, asked)
        else:
            own["panels"] = tuple(key for key in PANELS if key in (asked or PANELS))
        own["values"] = given["value"]
    if "depth" in given:
        own |= {"depths": given["depth"], "widths": given["width"]}
    if "encoder" in given:
        encoders = flat_names(given["encoder"]) or ENCODERS
        own["encoders"] = tuple(name for name in ENCODERS if name in encoders)
    if "finetune_epochs" in given:
        own["finetuning"] = Finetuning(epochs=_or(given["finetune_epochs"], PRESETS[given["preset"]].finetune_epochs))
    if "trials" in given:
        preset = PRESETS[given["preset"]]
        epochs = _or(given["epochs"], preset.epochs)
        own["search"] = resolve_search(given, seeds=preset.seeds, epochs=epochs)
    if "masking" in given:
        own["default"] = _default_point(given)
    elif "mask_prob" in given:
        own["mask_probs"] = tuple(sorted(_or(given["mask_prob"], MASK_PROBS)))
        own["t_inits"] = tuple(sorted(_or(given["t_init"], T_INITS)))
    return own


def _default_point(given: Mapping[str, Any]) -> Hyperparameters:
    masking = given["masking"]
    mask_prob = _or(given["mask_prob"], 0.0 if masking == "none" else DEFAULT_MASK_PROB)
    return replace(Hyperparameters(), masking=masking, mask_prob=mask_prob, t_init=given["t_init"])


def _resources(given: Mapping[str, Any]) -> tuple[Resources, str]:
    """A device named without a number of GPUs gets one whole GPU; GPUs without a device mean cuda."""
    gpus, device = given["gpus_per_pack"], given["device"]
    if device == "auto":
        device = "cuda" if gpus else "cpu"
    if gpus is None:
        gpus = 1.0 if device == "cuda" else 0.0
    if (device == "cuda") != (gpus != 0):
        raise ConfigError(f"gpus per pack must be above 0 exactly when the device is cuda, got {gpus:g} with {device}")
    return Resources(cpus=given["cpus_per_pack"], gpus=gpus), device


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _as_typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options for the manifest: plain values, lists flat, no password, and no folder, which decides no number."""
    folders = (
        *("output", "data_dir", "storage", "choice_from", "export", "space"),
        *("card", "write_card", "split_file", "test_file"),
    )
    typed = {name: _plain(value) for name, value in given.items() if value not in (None, ()) and name not in folders}
    for name in ("encoder", "panel"):
        if name in given:
            typed[name] = list(flat_names(given[name]))
    if given.get("grid"):
        typed["grid"] = [str(grid) for grid in flat_names(given["grid"])]
    if given["tracking_uri"] is not None:
        typed["tracking_uri"] = without_password(given["tracking_uri"])
    return typed


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float) else str(value)
