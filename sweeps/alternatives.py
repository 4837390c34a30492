"""Score what needs no pretraining on the same split: a constant, gradient boosting, a linear model, and XGBoost.

XGBoost is there if it is installed. Each is fitted to the train rows with its defaults, to numbers and declared
categories as they are; validation and test are scored once. The report sets these scores beside those of pretraining.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from adaptbin.config import Protocol
from adaptbin.data.sources import load_table
from sweeps.service.card_view import show_cards
from sweeps.service.command_line import flat_names, run_words
from sweeps.service.options import output_folder
from sweeps.service.own_tables import read_data_sets, write_asked_card, write_cards
from sweeps.service.parameters import alternatives_options
from sweeps.service.publish_alternatives import folder_of, publish


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script, see :func:`sweeps.service.command_line.run_words`; what is refused is so before any fit."""
    return run_words(argv, prog="alternatives.py", about=__doc__ or "", options=alternatives_options(), work=_fit)


def _fit(given: Mapping[str, Any]) -> None:
    protocol, output = Protocol.named(given["protocol"]), output_folder(given["output"])
    data_sets = read_data_sets(flat_names(given["dataset"]), given)
    write_asked_card(given["write_card"], data_sets.cards, data_sets.profiles)
    show_cards(data_sets.cards, data_sets.profiles)
    tables = [data_sets.tables.get(name) or load_table(name, data_dir=given["data_dir"]) for name in data_sets.cards]
    for table in tables:
        print(publish(table, output, seeds=given["seeds"], protocol=protocol))
        write_cards(folder_of(output, table), [table.card.key], data_sets.cards, data_sets.profiles)


if __name__ == "__main__":
    sys.exit(main())
