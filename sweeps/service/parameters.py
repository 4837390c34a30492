"""The options of scripts, those of all and those of some: their names, kinds, defaults and help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click

from adaptbin.config import Budget, Hyperparameters, MaskingKind, Protocol, SeedsVary
from adaptbin.data.registry import CARDS
from adaptbin.metrics import METRICS
from sweeps.service.architectures import DEPTHS, WIDTHS
from sweeps.service.grid import DEFAULT_MASK_PROB, MASK_PROBS, T_INITS
from sweeps.service.methods_finetune import ENCODERS
from sweeps.service.own_grids import fields_help
from sweeps.service.panels import PANELS
from sweeps.service.parameter_types import Decimals, Duration, Grids, Names, One, Seeds, Switch, Wholes
from sweeps.service.parameters_own import dataset_option, own_table_options
from sweeps.service.points import AskedTest
from sweeps.service.variants import T_MAXS

PAPERS = tuple(name for name, card in CARDS.items() if not card.embedded)
"""The data sets of the paper; the embedded ones are for trying things out."""


@dataclass(frozen=True)
class Preset:
    """How much is trained unless other options say so."""

    seeds: int
    epochs: int
    probe_epochs: int
    finetune_epochs: int


PRESETS = {"paper": Preset(10, 1000, 100, 100), "quick": Preset(3, 60, 30, 10)}

_PATH: Any = click.Path(path_type=Path)


def parameters(own: Iterable[click.Parameter]) -> list[click.Parameter]:
    """All options of a script, in the order of the help page: ``own`` are those that not every script has.

    A script that fine-tunes has no probes, and one that chooses architectures no pretraining.
    """
    own = list(own)
    names = {option.name for option in own}
    finetunes, pretrains = "finetune_epochs" in names, "depth" not in names
    presets = "; ".join(
        f"{name}: {preset.seeds} seeds, {f'{preset.epochs} and ' if pretrains else ''}"
        f"{preset.finetune_epochs if finetunes else preset.probe_epochs} epochs"
        for name, preset in PRESETS.items()
    )
    return [
        dataset_option(PAPERS),
        *own_table_options(),
        _one("--preset", tuple(PRESETS), f"How much to train ({presets}).", "paper"),
        _option("--seeds", Seeds(), "A number n (seeds 0 to n-1), or a list such as 0,3,5 or 2-4 or '7,'."),
        *([_option("--epochs", int, "Pretraining epochs.")] if pretrains else []),
        *([] if finetunes else _probe_options()),
        *own,
        *_protocol_options(),
        _option("--pack", int, "Most replicas trained together; by default all points of one seed, or fewer where "
                "cores would stay idle."),
        _option("--cpus-per-pack", float, "Cores of one pack; kernels use one, so more packs beat wider ones.", 1.0),
        _option("--gpus-per-pack", float, "GPUs of one pack: a share below 1, or a whole number."),
        _one("--device", ("auto", "cpu", "cuda"), "auto is cuda where --gpus-per-pack is given, else cpu.", "auto"),
        _option("--address", str, "Join the Ray cluster there instead of starting one on this machine."),
        _option("--storage", str, "Where checkpoints go: a folder or bucket (s3://...) that all machines share; "
                "without it they stay in --output, and travel there from other machines."),
        _data_dir_option(),
        _option("--output", _PATH,
                "Folder for results, tables, figures and MLflow.  [default: mlruns/ of the checkout]"),
        _option("--tracking-uri", str, "MLflow store to use instead of the one that goes with --output."),
        _option("--budget", Duration(), "Time from now to the end, such as 2h, 90min or 1h30m; seeds that would take "
                "longer are left out."),
        _option("--plan", bool, "Print what would be trained, and train nothing.", False, is_flag=True),
        _option("--retry-failed", bool, "Train again what failed in earlier runs.", False, is_flag=True),
        _option("--rebuild", bool, "Tables, figures and MLflow from the results files alone.", False, is_flag=True),
    ]  # fmt: skip


def _probe_options() -> list[click.Parameter]:
    return [
        _option("--probe-epochs", int, "Epochs of each linear probe."),
        _option("--probes", int, "Linear probes per replica; its score is their mean.", Budget().probes),
    ]


def seeds_vary_options() -> list[click.Parameter]:
    """What a seed changes; without the option it is the pretraining."""
    return [_one("--seeds-vary", get_args(SeedsVary), "What a seed changes.", "pretrain")]


def panel_options() -> list[click.Parameter]:
    """Which panels are trained, and with which values."""
    return [
        _option("--panel", str, f"Panels to train, of: {', '.join(PANELS)}, or those of --grid.  [default: all]",
                multiple=True),
        _option("--value", str, "One more value of a panel, as tau=0.003; may be repeated.", multiple=True),
        _option("--grid", Grids(), "Own panels in place of the paper's; may be repeated: field=values, as "
                "w_sord=1,3,10; two fields as a map, as 'w_sord=1,3,10*tau=1e-4,1e-3'; or a YAML file with a list of "
                f"such.  Fields (and short names): {fields_help()}.", multiple=True),
    ]  # fmt: skip


def variant_options() -> list[click.Parameter]:
    """What the variants of an ablation have in place of the full method's."""
    return [
        _option("--refine-every", int, "Epochs between refinements of all features, w/o FPT.  [default: patience + 1]"),
        _option("--t-max", Wholes("t-max", T_MAXS), "T_max of further variants: one or several whole numbers.  "
                f"[default: {', '.join(map(str, T_MAXS))}, where above T_init]"),
    ]  # fmt: skip


def default_point_options() -> list[click.Parameter]:
    """The default point of all data sets."""
    return [
        _one("--masking", get_args(MaskingKind), "What replaces masked inputs in pretraining.", "none"),
        _option("--mask-prob", float,
                f"Probability of masking an input; {DEFAULT_MASK_PROB} where --masking is given."),
        _option("--t-init", int, "Quantile bins per feature at the start.", Hyperparameters().t_init),
    ]  # fmt: skip


def tuning_options() -> list[click.Parameter]:
    """Among which p_m and T validation chooses."""
    return [
        _option("--mask-prob", Decimals("mask-prob", MASK_PROBS), "Values of p_m to choose from, where inputs are "
                f"masked.  [default: {', '.join(map(str, MASK_PROBS))}]"),
        _option("--t-init", Wholes("t-init", T_INITS), "Numbers of bins to choose from: T_init of adaptive ones, T of "
                f"fixed ones.  [default: {', '.join(map(str, T_INITS))}]"),
    ]  # fmt: skip


def architecture_options() -> list[click.Parameter]:
    """Depths and widths to choose from; a script that has them pretrains nothing."""
    return [
        _option(f"--{name}", Wholes(name, usual), f"Values of {name} to choose from; the paper's choice is always one "
                f"of them.  [default: {', '.join(map(str, usual))}]")
        for name, usual in (("depth", DEPTHS), ("width", WIDTHS))
    ]  # fmt: skip


def finetuning_options() -> list[click.Parameter]:
    """How long models are trained on labels."""
    return [_option("--finetune-epochs", int, "Epochs of each fine-tuning.")]


def encoder_options() -> list[click.Parameter]:
    """Which encoders are trained."""
    return [
        _option("--encoder", Names("encoder", ENCODERS), f"Encoders to train, of: {', '.join(ENCODERS)}.  "
                "[default: all]", multiple=True),
    ]  # fmt: skip


def pretext_choice_options() -> list[click.Parameter]:
    """How each pretext of each data set is masked and binned, as the benchmark chose it."""
    return [
        _option("--choice-from", _PATH, "Take masking, p_m and T of every pretext from what benchmark.py chose: its "
                "--output, or a choices.json.  [default: no masking, T 2; MR, which needs one: constant, p_m 0.2]"),
    ]  # fmt: skip


def choice_options(taken: str = "masking, mask-prob and t-init of each data set") -> list[click.Parameter]:
    """What the masking study chose for each data set; ``taken``: what of it is taken over, in words."""
    return [
        _option("--choice-from", _PATH,
                f"Take {taken} from what masking.py chose: its --output, or a choice.json."),
    ]  # fmt: skip


def comparison_options() -> list[click.Parameter]:
    """How points are compared with the default."""
    return [
        _one("--test", get_args(AskedTest), "Paired test of every point against the default.", "wilcoxon"),
        _one("--metric", tuple(METRICS), "Metric to test and draw; by default the data set's primary one."),
    ]


def show_test_options() -> list[click.Parameter]:
    """Whether test scores are shown of points that were not chosen."""
    return [
        _option("--show-test", bool, "Show test scores of all points, not of the chosen one alone.", False,
                is_flag=True),
    ]  # fmt: skip


def export_options(usual: str = "the default point", seed: str = "the first of --seeds") -> list[click.Parameter]:
    """The one replica that is exported, and where to; ``usual`` and ``seed``: which one by default, in words."""
    return [
        _option("--export", _PATH, "Save the model of one replica to this folder, and do nothing else."),
        _option("--point", str, "What to export: field=value pairs such as w_sord=3,tau=0.001, relative to the default "
                f"point, or the id of a point or replica.  [default: {usual}]"),
        _option("--seed", int, f"Seed of the replica to export.  [default: {seed}]"),
        _option("--overwrite", bool, "Replace a model in the folder of --export.", False, is_flag=True),
    ]  # fmt: skip


def alternatives_options() -> list[click.Parameter]:
    """All options of the script of models without pretraining."""
    return [
        dataset_option(PAPERS),
        *own_table_options(),
        _option("--seeds", Seeds(), "Seeds of fits that depend on one; as in the sweeps.", str(PRESETS["paper"].seeds)),
        _protocol_option(),
        _data_dir_option(),
        _option("--output", _PATH, "Folder for the tables.  [default: mlruns/ of the checkout]"),
    ]


def embed_options() -> list[click.Parameter]:
    """All arguments and options of the script that embeds new rows."""
    return [
        click.Argument(["model"], type=_PATH),
        click.Argument(["rows"], type=_PATH),
        _option("--output", _PATH, "File for the embeddings, .csv or .parquet.", required=True),
        _option("--id", str, "Column of ROWS to keep beside the embeddings."),
        _option("--overwrite", bool, "Replace the output where it is there.", False, is_flag=True),
    ]


def report_options() -> list[click.Parameter]:
    """All options of the script that holds results against the paper."""
    return [
        _registered_option(),
        _option("--results", _PATH, "Output folder of other scripts; may be repeated: of two tables of one kind the "
                "first counts.", required=True, multiple=True),
        *_protocol_options(),
        _option("--output", _PATH, "Folder for report.md and report.csv.  [default: the first of --results]"),
    ]  # fmt: skip


def _registered_option() -> click.Option:
    text = f"One or several of: {', '.join(CARDS)}; all means the paper's eight, {', '.join(PAPERS)}."
    return _option("--dataset", Names("data set", tuple(CARDS), PAPERS), text, required=True, multiple=True)


def _protocol_option() -> click.Option:
    return _one("--protocol", ("paper", "released"), "The paper's choices, or those of its released code.", "paper")


def _protocol_options() -> list[click.Parameter]:
    return [
        _protocol_option(),
        _option("--switch", Switch(), "One choice of the protocol, as decoder_depth=encoder; may be repeated.  "
                f"Choices: {_switches_help()}.", multiple=True),
    ]  # fmt: skip


def _switches_help() -> str:
    """``label_order (clinical, alphabetical); ...``, the first of each being the usual one."""
    return "; ".join(f"{name} ({', '.join(values)})" for name, values in Protocol.choices().items())


def _data_dir_option() -> click.Option:
    text = "Folder that holds data files; before $ADAPTBIN_DATA and the per-user cache."
    return _option("--data-dir", _PATH, text)


def _option(name: str, kind: Any = str, text: str = "", default: Any = None, **extra: Any) -> click.Option:
    return click.Option([name], type=kind, default=default, help=text, **extra)


def _one(name: str, known: Sequence[str], text: str, default: str | None = None) -> click.Option:
    return _option(name, One(name.removeprefix("--"), known), text, default)
