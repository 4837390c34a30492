"""Cards: complete, consistent with one another and with the numbers of the paper and of the released code."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from adaptbin.data import CARDS, Card, get_card
from adaptbin.errors import ConfigError
from adaptbin.tasks import Task

METRICS = {
    Task.BINARY: {"auc"},
    Task.MULTICLASS: {"accuracy"},
    Task.ORDINAL: {"qwk"},
    Task.REGRESSION: {"rmse"},
}


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_every_card_is_consistent(card: Card) -> None:
    names = [c.name for c in card.columns]
    assert len(set(names)) == len(names)
    assert {*names, card.target, card.group or card.target} <= set(card.header)
    assert card.target not in names and card.group not in names
    assert (card.levels is None) == (card.task is Task.REGRESSION)
    assert card.levels is None or len(set(card.levels)) == len(card.levels) >= 2
    assert card.primary_metric in METRICS[card.task]
    assert re.fullmatch("[0-9a-f]{64}", card.fingerprint)
    assert bool(card.files) != card.embedded
    assert card.page and card.licence and card.title
    assert card.url is None or card.url.startswith("https://") and card.url.endswith(".zip")


def test_the_paper_s_table_of_data_sets() -> None:
    paper = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text())["datasets"]
    assert list(CARDS)[:8] == list(paper)
    for key, row in paper.items():
        card, shape = CARDS[key], CARDS[key].architecture
        assert (card.task, len(card.columns)) == (row["task"], row["features"])
        assert (None if card.levels is None else len(card.levels)) == row["classes"]
        assert (shape.width, shape.depth, shape.batch_size) == (row["width"], row["depth"], row["batch_size"])
        # The paper prints 1013 rows for mhr; every copy in circulation has 1014.
        assert card.rows == row["rows"] + (key == "mhr")


def test_kinds_are_those_of_the_released_code(golden_tables: dict[str, Any]) -> None:
    for key, golden in golden_tables.items():
        card = CARDS[key]
        assert [c.name for c in card.columns] == golden["columns"]
        assert list(card.categorical) == golden["categorical"]
        assert list(card.numerical) == golden["numerical"]
        assert (card.target, card.rows) == (golden["target"], golden["rows"])


def test_ordinal_levels_are_in_clinical_order() -> None:
    assert CARDS["mhr"].levels == ("low risk", "mid risk", "high risk")
    assert CARDS["eol"].levels is not None
    assert [level[:12] for level in CARDS["eol"].levels] == [
        *("Insufficient", "Normal_Weigh", "Overweight_L", "Overweight_L"),
        *("Obesity_Type", "Obesity_Type", "Obesity_Type"),
    ]


@pytest.mark.parametrize(("name", "nearest"), [("eoll", "'eol'"), ("EOL", "'eol'"), ("breast-cancer", "breast_cancer")])
def test_an_unknown_name_gets_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown data set '{name}'; did you mean .*{nearest}.*known: bfp, "):
        get_card(name)


def test_cards_are_small_and_travel() -> None:
    for card in CARDS.values():
        data = pickle.dumps(card)
        assert pickle.loads(data) == card
        assert len(data) < 20_000
        assert json.loads(json.dumps(card.summary()))["rows"] == card.rows


def test_the_registry_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CARDS["eol"] = CARDS["mhr"]  # type: ignore[index]
