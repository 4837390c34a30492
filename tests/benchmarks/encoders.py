"""Fine-tuning of every encoder on stacked replicas against a plain loop over a published single model, on one core.

    python -m tests.benchmarks.encoders            printed; `make bench` adds it to RESULTS.md

The table is shaped like eol.  Plain loops: torch.nn for the perceptron, rtdl_revisiting_models and pytorch_tabnet for
ResNet, FT-Transformer and TabNet; nobody publishes T2G-Former as a package, so its plain loop is our own model alone.
Dropout, AdamW, a look at validation after every epoch: both sides do all of it.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor, nn

from adaptbin.config import Architecture, Budget, EncoderName, Finetuning, Hyperparameters, Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.encoders.registry import settings_of
from adaptbin.training.finetune import FineTuning
from adaptbin.training.pack import finetunings_of
from tests.benchmarks.children import answers
from tests.benchmarks.results import table as markdown_table
from tests.benchmarks.shapes import eol_like

ENCODERS: tuple[EncoderName, ...] = get_args(EncoderName)

GOAL, JUDGED = 3.0, ("mlp", "resnet")
"""How many times faster than its plain loop a pack of ten must be, and of which encoders."""

SAMPLES = 3
"""Of every job, in turns."""

ALONE: EncoderName = "t2g_former"
"""Nobody publishes this one as a package, so that its plain loop is our own model alone."""

HEADER = ("encoder", "plain ms", "R=1 ms", "R=10 ms", "x plain at R=1", "at R=10")


@dataclass(frozen=True)
class Job:
    """What is trained, and for how long."""

    encoder: EncoderName
    replicas: int
    """0 is the plain loop, which trains one model."""
    epochs: int


class PlainLoop:
    """One published model, trained as its users do."""

    def __init__(self, encoder: EncoderName, table: EncodedTable, architecture: Architecture) -> None:
        self._table, self._batch_size = table, architecture.batch_size
        self._model, self._read = _published(encoder, table, architecture)
        settings = Finetuning()
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._generator = torch.Generator().manual_seed(0)

    def run_epoch(self) -> None:
        """Train one epoch, and look at validation."""
        table, loss = self._table, nn.CrossEntropyLoss()
        x, target = table.inputs[table.train], table.target[table.train]
        self._model.train()
        for rows in torch.randperm(len(x), generator=self._generator).split(self._batch_size):
            self._optimizer.zero_grad()
            loss(self._read(x[rows]), target[rows]).backward()
            self._optimizer.step()
        self._model.eval()
        with torch.no_grad():
            self._read(table.inputs[table.val])


def _published(
    encoder: EncoderName, table: EncodedTable, architecture: Architecture
) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """A model with its usual settings, and how it reads rows [B, F] -> [B, classes]."""
    inputs, outputs, numerical = table.inputs.shape[1], table.n_classes, table.n_numerical
    settings: Any = settings_of(replace(architecture, encoder=encoder))
    model: nn.Module
    if encoder == "mlp":
        sizes = [inputs, *[architecture.width] * (architecture.depth + 1)]
        layers = [nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
        hidden = [part for layer in layers[:-1] for part in (layer, nn.ReLU(), nn.Dropout(architecture.dropout))]
        model = nn.Sequential(*hidden, layers[-1], nn.Linear(architecture.width, outputs))
        return model, model
    if encoder == "resnet":
        from rtdl_revisiting_models import ResNet

        model = ResNet(d_in=inputs, d_out=outputs, **vars(settings))
        return model, model
    if encoder == "ft_transformer":
        from rtdl_revisiting_models import FTTransformer

        model = FTTransformer(
            n_cont_features=numerical,
            cat_cardinalities=list(table.cardinalities),
            d_out=outputs,
            **FTTransformer.get_default_kwargs(),
        )
        return model, lambda x: model(x[:, :numerical], x[:, numerical:].long())
    assert encoder == "tabnet", encoder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pytorch_tabnet.tab_network import TabNet

    names = ("n_d", "n_a", "n_steps", "gamma", "virtual_batch_size", "momentum", "n_shared", "n_independent")
    model = TabNet(
        inputs,
        outputs,
        group_attention_matrix=torch.eye(inputs),
        **{name: getattr(settings, name) for name in names},
    )
    return model, lambda x: model(x)[0]


class Stacked:
    """A pack, walked in its stacks as ``train_pack`` does it."""

    def __init__(self, encoder: EncoderName, table: EncodedTable, architecture: Architecture, count: int) -> None:
        replicas = [
            Replica(
                dataset="eol",
                fingerprint=table.fingerprint,
                architecture=replace(architecture, encoder=encoder),
                hyperparameters=Hyperparameters(pretext="none"),
                seed=seed,
                budget=Budget(epochs=0),
                finetuning=Finetuning(),
            )
            for seed in range(count)
        ]
        self.stacks: list[FineTuning] = finetunings_of(replicas, table)

    def run_epoch(self) -> None:
        """One epoch of every stack."""
        for stack in self.stacks:
            stack.run_epoch()


def run_job(job: Job, ready: Callable[[], None] = lambda: None, n_rows: int = 0) -> float:
    """Set ``job`` up, call ``ready``, train; one thread; -> CPU ms per replica and step, after an epoch of warm-up."""
    torch.set_num_threads(1)
    table = eol_like(n_rows)
    architecture = table.card.architecture
    subject: PlainLoop | Stacked
    if job.replicas == 0 and job.encoder != "t2g_former":
        subject = PlainLoop(job.encoder, table, architecture)
    else:
        subject = Stacked(job.encoder, table, architecture, max(1, job.replicas))
    subject.run_epoch()
    ready()
    began = time.process_time()
    for _ in range(job.epochs):
        subject.run_epoch()
    steps = -(-len(table.train) // architecture.batch_size)
    return 1e3 * (time.process_time() - began) / (job.epochs * steps * max(1, job.replicas))


Measure = Callable[[Job], float]


def in_child(job: Job) -> float:
    """The job in a process of its own."""
    (answer,) = answers("tests.benchmarks.encoders", [job])
    return float(answer["cpu_ms"])


def section(measure: Measure, epochs: int = 4, samples: int = SAMPLES) -> str:
    """Every encoder in turns with its plain loop, as markdown; each number is the median of the samples."""
    rows, missed = [], []
    for encoder in ENCODERS:
        found: dict[int, list[float]] = {count: [] for count in (0, 1, 10)}
        for _ in range(samples):
            for count in found:
                found[count].append(measure(Job(encoder, count, epochs if encoder in JUDGED else 1)))
        plain, one, ten = (statistics.median(times) for times in found.values())
        print(f"  fine-tuning {encoder}: plain {plain:.3f}, R=1 {one:.3f}, R=10 {ten:.3f} ms CPU", flush=True)
        name = f"{encoder} *" if encoder == ALONE else encoder
        rows.append((name, f"{plain:.3f}", f"{one:.3f}", f"{ten:.3f}", f"{plain / one:.1f}", f"{plain / ten:.1f}"))
        if encoder in JUDGED and plain / ten < GOAL:
            missed.append(encoder)
    verdict = f"MISSED by {', '.join(missed)}" if missed else "reached"
    goal = f"Goal for {' and '.join(JUDGED)} at R=10: {GOAL:.0f}x: {verdict}."
    note = ["\\* Nobody publishes it as a package: its plain loop is our own model, a pack of one."]
    return "\n\n".join(
        [
            "### Fine-tuning, encoder by encoder (a table shaped like eol)",
            markdown_table(HEADER, rows),
            *(note if ALONE in ENCODERS else []),
            goal,
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """All encoders, or one job as a parent asks for it."""
    words = sys.argv[1:] if argv is None else argv
    if not words:
        print(section(in_child))
        return 0

    def announce() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    print(json.dumps({"cpu_ms": run_job(Job(**json.loads(words[0])), announce)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
