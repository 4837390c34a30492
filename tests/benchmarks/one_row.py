"""How much of an error one test row makes: the man of 29.5 inches in bfp, under the methods that validation chose.

    python -m tests.benchmarks.one_row --data-dir DIR --output docs/results/causes/bfp/one_row.csv

Trains each method of the committed benchmark of bfp that is asked for with a few seeds, and scores the same probes on
all test rows and on those but the one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from adaptbin.config import Replica
from adaptbin.data import encode, load_table
from adaptbin.data.encode import EncodedTable
from adaptbin.data.registry import get_card
from adaptbin.training.pack import train_pack
from adaptbin.training.probe import probe
from sweeps.service.files import write_text
from sweeps.service.methods import METHODS, BenchmarkStudy, Method

CHOSEN = Path(__file__).parents[2] / "docs" / "results" / "benchmark" / "bfp" / "table.csv"

ROW = 41
"""Position in the file, from 0, of the man whose height must be an error of entry."""


def errors_frame(replicas: Mapping[str, Sequence[Replica]], table: EncodedTable, row: int) -> pd.DataFrame:
    """One row per method and seed: RMSE on all test rows, on all but ``row``, and the error on ``row`` itself.

    Means over probes, in target units; the error is the root of the mean square.  ``replicas`` by method; those of a
    method are of one stack.  Raises ValueError when ``row`` is no test row.
    """
    if row not in table.test.tolist():
        raise ValueError(f"row must be one of test, got {row}")
    others = replace(table, test=table.test[table.test != row])
    n, rows = len(table.test), []
    for method, asked in replicas.items():
        stacks: list[Any] = []
        train_pack(asked, table, trained=lambda found, _, stacks=stacks: stacks.extend(found))
        embeddings = torch.cat([stack.embed(table.inputs) for stack in stacks])
        by_part = [probe(embeddings, asked, part) for part in (table, others)]
        for replica, *found in zip(asked, *by_part, strict=True):
            whole, without = ([head["test"]["rmse"] for head in scores.heads] for scores in found)  # type: ignore[index]
            squares = [n * a**2 - (n - 1) * b**2 for a, b in zip(whole, without, strict=True)]
            rows.append(
                {
                    "method": method,
                    "seed": replica.seed,
                    "rmse": sum(whole) / len(whole),
                    "rmse_without_row": sum(without) / len(without),
                    "error_on_row": math.sqrt(max(0.0, sum(squares) / len(squares))),
                }
            )
    return pd.DataFrame(rows)


def chosen_replicas(names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[Replica]]:
    """Of every method asked for the replicas of its chosen candidate."""
    study = BenchmarkStudy(cards=(get_card("bfp"),), seeds=tuple(seeds))
    table = {Method.of_row(row).name: row for row in pd.read_csv(CHOSEN, keep_default_na=False).to_dict("records")}
    found = {}
    for method in METHODS:
        if method.name in names:
            row = table[method.name]
            (point,) = (
                point
                for point in study.candidates[method]
                if point.mask_prob == float(row["mask_prob"])
                and (not method.has_bins or point.t_init == int(row["t_init"]))
            )
            found[method.name] = [study.replica(study.cards[0], point, seed) for seed in seeds]
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Train, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "--method",
        nargs="+",
        choices=[method.name for method in METHODS],
        default=["adaptive/constant/Ours", "adaptive/random/Ours", "fixed/constant/BR", "fixed/random/BR"],
    )
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    table = encode(load_table("bfp", data_dir=asked.data_dir))
    errors = errors_frame(chosen_replicas(asked.method, range(asked.seeds)), table, ROW)
    print(errors.to_string(index=False))
    write_text(asked.output, errors.round(4).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()
