"""How much memory a pack takes, and how large a pack may therefore be.

A pack's process takes something by itself, and more with every model it trains.  What records of finished replicas tell
comes first; otherwise it follows from the shapes of the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adaptbin.config import RECONSTRUCTED, Finetuning, Hyperparameters, pretext_of
from adaptbin.errors import ResourceError
from sweeps.service.kinds import Work
from sweeps.service.models import EncoderSize, encoder_size
from sweeps.service.nodes import Node
from sweeps.service.points import Point, Study

MIB, GIB = 2**20, 2**30

PROCESS_BYTES = 400 * MIB
"""A worker's own: torch takes 290 MiB, Ray and what reads the tables the rest (measured, torch 2.13 for CPUs)."""

GPU_PROCESS_BYTES = 600 * MIB
"""GPU memory that a process takes before its first tensor: the context and the libraries' kernels."""

KEPT_BACK = 1.0 * GIB
"""Main memory of a node for the driver and Ray's object store, besides the share below."""

USABLE = 0.9
"""Share of a memory that packs may fill; Ray begins to kill at 95 % of a node's."""

MARGIN = 1.25
"""Between what shapes or records tell and what a pack is given."""

ROWS_PER_BIN = 1.5
"""Train rows per bin, in units of the least rows of a split, once the widest feature has grown its bins."""

STACK = 5
"""Models that a CPU computes together; buffers of one step are theirs alone (``adaptbin.training.pack``)."""


@dataclass(frozen=True)
class Sizes:
    """What a data set's shapes are."""

    train_rows: int
    """Rows that are pretrained on, also those without a label."""
    features: int
    rows: int = 0
    """All rows; 0 stands for those of a 64 % train split."""

    @property
    def all_rows(self) -> int:
        """All rows."""
        return self.rows or round(self.train_rows / 0.64)


@dataclass(frozen=True)
class Need:
    """Memory of a pack, in bytes.  Replicas that share a pretraining are one model, unless each is fine-tuned."""

    fixed: int
    """Of the process itself, and of the table."""
    per_model: int
    per_computed: int = 0
    """What each model takes besides while it is computed; a CPU computes up to ``STACK`` models at once."""
    measured: bool = False
    """Whether it rests on records, rather than on shapes."""

    def of(self, models: int) -> int:
        """Bytes of a pack of so many models."""
        return self.fixed + models * self.per_model + min(models, STACK) * self.per_computed

    def most(self, limit: int) -> int:
        """Models that fit in ``limit`` bytes; 0 when not even one does."""
        if self.of(STACK) <= limit:
            return (limit - self.of(0) - STACK * self.per_computed) // max(1, self.per_model)
        return next((models for models in range(STACK - 1, 0, -1) if self.of(models) <= limit), 0)


def memory_of_a_pack(node: Node, gpus: float, at_once: int) -> int | None:
    """Bytes that each of ``at_once`` packs has on ``node``: of its GPU where it has one (``gpus`` is its share).

    None where nobody knows.
    """
    if gpus:
        return None if node.gpu_memory is None else int(USABLE * node.gpu_memory * min(1.0, gpus))
    return None if node.memory is None else max(0, int((USABLE * node.memory - KEPT_BACK) / at_once))


def largest_pack(dataset: str, need: Need, limit: int, *, on_gpu: bool) -> int:
    """Models that a pack of ``dataset`` may hold in ``limit`` bytes.  Raises ResourceError when not even one fits."""
    most = need.most(limit)
    if most < 1:
        where, option = ("of its GPU", "--gpus-per-pack") if on_gpu else ("of its node", "--cpus-per-pack")
        raise ResourceError(
            f"a pack must fit in the memory it is given, got {in_words(limit)} {where} for one replica of {dataset}, "
            f"which needs about {in_words(need.of(1))}; a higher {option} makes fewer packs share it"
        )
    return most


def in_words(size: float) -> str:
    """``2.4 GiB``, ``370 MiB``."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def needs(
    study: Study, sizes: Mapping[str, Sizes], records: Iterable[Mapping[str, Any]], device: str
) -> dict[Work, Need]:
    """What packs of each kind of work take on ``device``, from ``records`` of the same work where there are some."""
    found: dict[Work, Need] = {}
    records = list(records)
    for dataset in study.datasets:
        points: dict[Work, list[Point]] = {}
        for seeds_vary in study.all_seeds_vary:
            for point in study.points_of(dataset):
                points.setdefault(Work.of(dataset, point, seeds_vary), []).append(point)
        for work, alike in points.items():
            runtimes = [record["runtime"] for record in records if _tells_of(record["identity"], work)]
            found[work] = need_of_records(runtimes, need_of_shapes(sizes[dataset], alike, device), device)
    return found


def _tells_of(identity: Mapping[str, Any], work: Work) -> bool:
    """Whether a replica of that identity took as much memory as one of this work."""
    return (
        identity["dataset"] == work.dataset
        and identity["architecture"] == work.architecture.to_dict()
        and pretext_of(identity) == work.pretext
        and ("finetuning" in identity) == (work.finetuning is not None)
        and identity["seeds_vary"] == work.seeds_vary != "probe"
        # A shorter run has grown fewer bins.
        and identity["budget"]["epochs"] >= work.budget.epochs
    )


def need_of_records(runtimes: Iterable[Mapping[str, Any]], shaped: Need, device: str) -> Need:
    """What packs took that are on record; ``shaped`` where there are none.

    Packs of several sizes tell what each model adds; of one size, the process's own part is taken as known.
    """
    peaks: dict[int, int] = {}
    for runtime in runtimes:
        if runtime.get("peak_bytes") and runtime["device"].split(":")[0] == device:
            size = int(runtime["pack_size"])
            peaks[size] = max(peaks.get(size, 0), int(runtime["peak_bytes"]))
    if not peaks:
        return shaped
    base = 0.0 if device != "cpu" else float(PROCESS_BYTES)  # a GPU's peak counts tensors only
    small, large = min(peaks), max(peaks)
    slope = max((peak - base) / size for size, peak in peaks.items())
    if large >= 2 * small:
        slope = (peaks[large] - peaks[small]) / (large - small)
        base = max(peak - size * slope for size, peak in peaks.items())
    # A few replicas tell little of the slope; no model takes less than its parameters.
    per_model = max(slope, shaped.per_model / 10)
    fixed = max(base, 0.0) + (0 if device == "cpu" else GPU_PROCESS_BYTES)
    return Need(int(fixed), math.ceil(MARGIN * per_model), measured=True)


def need_of_shapes(sizes: Sizes, points: Sequence[Point], device: str = "cpu") -> Need:
    """What follows from the shapes of the tensors of models of one kind of work; each seed's draws are shared by all
    ``points``."""
    held, moment, drawn = 0.0, 0.0, 0.0
    finetuning = points[0].finetuning
    parts = [_pretraining(sizes, points)] if points[0].budget.epochs else []
    # Fine-tuning begins when the whole pack is pretrained, and keeps where it began; probes come with a pretraining.
    parts += [] if finetuning is None else [_finetuning(sizes, points[0], finetuning)]
    for part in parts:
        held, moment, drawn = held + part.held, max(moment, part.moment), drawn + part.drawn
    rows, features = sizes.train_rows, sizes.features
    table = 16 * features * sizes.all_rows + 30 * features * rows  # as it came, encoded, sorted
    per_model, per_computed = held + drawn / len(points), moment
    if device == "cpu":
        per_model += table / STACK  # each stack has its own copy
        fixed = PROCESS_BYTES + table + drawn
    else:
        per_model, per_computed = per_model + moment, 0.0  # all models of a pack are computed at once
        fixed = GPU_PROCESS_BYTES + 2 * table + drawn
    return Need(math.ceil(fixed), math.ceil(MARGIN * per_model), math.ceil(per_computed))


class _Part(NamedTuple):
    """Bytes of one part of training."""

    held: float
    """Of each model, from its start."""
    moment: float
    """Of each model while it is computed."""
    drawn: float
    """Random draws of one seed."""


def _pretraining(sizes: Sizes, points: Sequence[Point]) -> _Part:
    """Pretraining, and the probes after it."""
    architecture, budget = points[0].architecture, points[0].budget
    widest = max((point.hyperparameters for point in points), key=lambda chosen: _bins(chosen, sizes.train_rows))
    bins, slots = _bins(widest, sizes.train_rows), max(point.hyperparameters.t_max for point in points)
    width, batch = architecture.width, architecture.batch_size
    rows, features = sizes.train_rows, sizes.features
    encoder = encoder_size(architecture, features)
    decoders = max(1, len(RECONSTRUCTED[widest.pretext]))
    weights = encoder.weights + decoders * ((encoder.width + width) * width + features * bins * width)
    # Values, gradients and two moments, float32; target bins; edges and scores of splits; the history of the run.
    held = 16 * weights + 4 * features * rows + 16 * features * slots + 40 * budget.epochs
    stretch = min(rows, 64 * batch)  # rows that are gathered at once
    step = 4 * (2 * stretch * features + batch * decoders * (12 * width + 3 * features * bins))
    # While the heads grow there are two copies of the parameters; probes hold embeddings of all rows in the same way.
    probing = 4 * encoder.width * (3 * sizes.all_rows + budget.probes * (sizes.all_rows / 6 + 8 * 8))
    drawn = 6 * decoders * rows * width + _drawn(sizes, points[0])
    looking = _looking(encoder, sizes.all_rows)
    return _Part(held, step + _kept(encoder.kept, batch) + max(16 * weights, probing, looking), drawn)


def _finetuning(sizes: Sizes, point: Point, finetuning: Finetuning) -> _Part:
    """Training on labels; its head is as good as nothing."""
    encoder, batch = encoder_size(point.architecture, sizes.features), point.architecture.batch_size
    # Values, gradients, two moments and the best epoch's values; while replicas leave there are two copies.
    held = 20 * encoder.weights + 16 * finetuning.epochs
    looking = _looking(encoder, round(0.2 * sizes.all_rows))  # test rows, a fifth of all; those of validation are fewer
    return _Part(held, _kept(encoder.kept, batch) + max(16 * encoder.weights, looking), _drawn(sizes, point))


def _bins(hyperparameters: Hyperparameters, rows: int) -> int:
    """Outputs per feature once the widest one has grown; 1 where values, or what is masked, are predicted."""
    if "bins" in RECONSTRUCTED[hyperparameters.pretext]:
        grown = max(hyperparameters.t_init, 8, round(rows / (ROWS_PER_BIN * hyperparameters.min_bin)))
        return min(hyperparameters.t_max, grown)
    return max(hyperparameters.t_init, 8) if "index" in RECONSTRUCTED[hyperparameters.pretext] else 1


def _kept(numbers: int, rows: int) -> float:
    """Of a step, so many numbers per row, and their gradients, which are not all there at once."""
    return 4 * 1.5 * numbers * rows


def _looking(encoder: EncoderSize, rows: int) -> float:
    """Of embedding so many rows at once without a gradient: of a large table transformers take a part at a time."""
    return 4 * min(encoder.kept * rows, 2**24)


def _drawn(sizes: Sizes, point: Point) -> float:
    """An epoch's order and dropped units of the encoder; those of another than the perceptron are a step's own."""
    architecture, rows = point.architecture, sizes.train_rows
    dropped = architecture.depth * rows * architecture.width if architecture.encoder == "mlp" else 0
    return 6 * dropped + 16 * rows * sizes.features
