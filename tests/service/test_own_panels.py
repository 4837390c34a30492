"""The study of own panels: its points, what moves together, values that come and go, and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adaptbin.config import Hyperparameters
from adaptbin.data.registry import get_card
from adaptbin.errors import ConfigError
from adaptbin.replicas.grouping import group_replicas
from sweeps.service.own_grids import parse_grid
from sweeps.service.own_panels import OwnPanelsStudy, panels_and_maps
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.point_fields import FIELDS
from tests.service.test_choice import choice_of

RANDOM = Hyperparameters(masking="random", mask_prob=0.3)


def study_of(*grids: str, datasets: tuple[str, ...] = ("eol",), **options) -> OwnPanelsStudy:
    cards = tuple(get_card(name) for name in datasets)
    return OwnPanelsStudy(cards=cards, **panels_and_maps(map(parse_grid, grids)), **{"seeds": (0,), **options})


def moved(study: OwnPanelsStudy, dataset: str = "eol") -> dict[tuple[str, object], dict[str, object]]:
    """(Panel, value) -> fields that differ from the default point, and their values."""
    default = study.default_point_of(dataset)
    return {
        (place.panel, place.value): {
            name: field.of(place.point) for name, field in FIELDS.items() if field.of(place.point) != field.of(default)
        }
        for place in study.points[dataset]
    }


def test_panels_and_maps_have_the_default_and_share_points() -> None:
    study = study_of("w_sord=1,3*tau=1e-3", "w_sord=1", "lr=1e-3,1e-5")
    assert study.panel_keys == ("w_sord", "learning_rate", "w_sord*tau")
    assert [panel.letter for panel in (*study.panels, *study.maps)] == ["a", "b", "c"]
    assert study.extent == {
        "w_sord": [1, 10],
        "learning_rate": [1e-5, 1e-4, 1e-3],
        "w_sord*tau": ["1*0.0001", "3*0.0001", "10*0.0001", "1*0.001", "3*0.001", "10*0.001"],
    }
    assert moved(study) == {
        ("w_sord", 1): {"w_sord": 1},
        ("w_sord", 10): {},
        ("learning_rate", 1e-5): {"learning_rate": 1e-5},
        ("learning_rate", 1e-4): {},
        ("learning_rate", 1e-3): {"learning_rate": 1e-3},
        ("w_sord*tau", "1*0.0001"): {"w_sord": 1},
        ("w_sord*tau", "3*0.0001"): {"w_sord": 3},
        ("w_sord*tau", "10*0.0001"): {},
        ("w_sord*tau", "1*0.001"): {"w_sord": 1, "tau": 1e-3},
        ("w_sord*tau", "3*0.001"): {"w_sord": 3, "tau": 1e-3},
        ("w_sord*tau", "10*0.001"): {"tau": 1e-3},
    }
    assert sum(place.is_default for place in study.points["eol"]) == 3
    assert len(study.points_of("eol")) == len(study.all_replicas) == 8
    assert study.points_of("eol")[0] == study.default_point_of("eol")


def test_the_papers_points_have_the_ids_they_had() -> None:
    papers = SensitivityStudy(cards=(get_card("eol"),), panels=get_panels(["tau", "w_var"]), seeds=(0, 1))
    own = study_of("w_var=0,1e-3,1e-2,1e-1,1", "tau=1e-5,1e-4,1e-3,1e-2,1e-1", seeds=(0, 1))
    assert [replica.id for replica in own.all_replicas] == [replica.id for replica in papers.all_replicas]
    assert own.name != papers.name  # its tables and figure do not replace the paper's


def test_architectures_move_and_are_packed_by_themselves() -> None:
    study = study_of("width=8,16", "dropout=0", "tau=1e-3", "batch_size=32*depth=1")
    card = get_card("eol").architecture
    assert moved(study)["width", 8] == {"width": 8}
    assert {r.architecture for r in study.all_replicas} == {
        card,
        *(replace(card, width=width) for width in (8, 16)),
        replace(card, dropout=0.0),
        replace(card, batch_size=32),
        replace(card, depth=1),
        replace(card, batch_size=32, depth=1),
    }
    groups = group_replicas(study.all_replicas)
    assert sorted(len(group) for group in groups) == [1, 1, 1, 1, 1, 1, 2]  # tau is stacked with the default
    settings = [point.settings(study.moved) for point in study.points_of("eol")]
    assert settings[1]["width"] == 8 and settings[0]["width"] == card.width


def test_data_sets_of_different_architectures_share_their_panel() -> None:
    study = study_of("width=32", datasets=("eol", "mhr"))
    widths = {get_card(name).architecture.width for name in ("eol", "mhr")}
    assert study.panels[0].values == tuple(sorted({32, *widths}))
    for name in ("eol", "mhr"):
        (default,) = (place for place in study.points[name] if place.is_default)
        assert default.value == get_card(name).architecture.width
    assert len(study.points_of("eol")) == len(study.points_of("mhr"))
    assert study.only("eol").panels == study.panels


class TestMasking:
    def test_alone_it_takes_a_probability_along(self) -> None:
        study = study_of("masking=random,constant")
        assert study.panels[0].values == ("none", "constant", "random")
        assert moved(study)["masking", "random"] == {"masking": "random", "mask_prob": 0.2}
        assert "Where masking is moved and p_m is not, p_m is 0.2; with none, 0" in study.notes
        masked = study_of("masking=none,constant", default=RANDOM)
        assert moved(masked)["masking", "constant"] == {"masking": "constant"}
        assert moved(masked)["masking", "none"] == {"masking": "none", "mask_prob": 0}
        assert masked.notes[1] == "Where masking is moved and p_m is not, p_m is 0.3; with none, 0"

    def test_in_a_map_with_another_field(self) -> None:
        cells = moved(study_of("masking=random*t_init=10"))
        assert cells["masking*t_init", "random*10"] == {"masking": "random", "mask_prob": 0.2, "t_init": 10}

    def test_its_probability_moves_where_it_is_on(self) -> None:
        assert study_of("mask_prob=0.1", default=RANDOM).panels[0].values == (0.1, 0.3)
        with pytest.raises(ConfigError, match=r"mask_prob=0\.1: mask_prob must be 0 with masking 'none'.*--masking"):
            study_of("mask_prob=0.1")
        with pytest.raises(ConfigError, match=r"mask_prob=0: mask_prob must be .* got masking 'random'"):
            study_of("mask_prob=0,0.1", default=RANDOM)

    @pytest.mark.parametrize(
        ("grid", "default", "cells"),
        [
            ("masking=random*p_m=.1,.3", Hyperparameters(), ["none*0", "random*0.1", "random*0.3"]),
            ("p_m=.1*masking=random", Hyperparameters(), ["0*none", "0.1*random"]),
            ("masking=none,random*p_m=.1", RANDOM, ["none*0", "random*0.1", "random*0.3"]),
            ("masking=random*p_m=0,.1", RANDOM, ["none*0", "random*0.1", "random*0.3"]),
            ("masking=constant*p_m=.1", RANDOM, ["constant*0.1", "random*0.1", "constant*0.3", "random*0.3"]),
        ],
    )
    def test_with_its_probability_none_stands_once(self, grid: str, default: Hyperparameters, cells: list[str]) -> None:
        study = study_of(grid, default=default)
        assert list(study.maps[0].cells) == cells
        assert "cells that say otherwise stay empty" in study.notes[-1]

    def test_of_data_sets_with_choices(self) -> None:
        study = study_of(
            "masking=constant", datasets=("eol", "hfc"), choices={"eol": choice_of(hyperparameters=RANDOM)}
        )
        assert study.panels[0].values == ("none", "constant", "random")
        assert moved(study, "eol")["masking", "constant"] == {"masking": "constant"}
        assert moved(study, "hfc")["masking", "constant"] == {"masking": "constant", "mask_prob": 0.2}
        assert "p_m is 0.2 or 0.3, by data set" in study.notes[1]


@pytest.mark.parametrize(
    ("grids", "message"),
    [
        (["tau=-1"], "a point of the grid cannot be, tau=-1: tau must be a finite number >= 0, got -1.0"),
        (["tau=nan"], "tau must be a finite number >= 0, got nan"),
        (["lr=0"], "learning_rate must be a finite number > 0, got 0.0"),
        (["patience=2.5"], "patience must be a whole number >= 1, got 2.5"),
        (["width=0"], "width must be a whole number >= 1, got 0"),
        (["dropout=1"], r"dropout must be in \[0, 1\), got 1.0"),
        (["batch_size=inf"], "batch_size must be a whole number >= 1, got inf"),
        (["t_init=2,300"], r"t_init must be at most t_max \(200\), got 300"),
        (["t_init=20*t_max=10"], r"t_init=20, t_max=10: t_init must be at most t_max \(10\), got 20"),
        (["tau=1e-4"], "a panel must have a value besides the default, got tau 0.0001"),
        (["tau=1e-4*lr=1e-3"], "a panel must have a value besides the default, got tau 0.0001"),
        ([], "at least one panel, each named once, got \\[\\]"),
        (["tau=1e-3", "tau=1e-2"], "each named once, got \\['tau', 'tau'\\]"),
    ],
)
def test_what_cannot_be(grids: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study_of(*grids)


def test_weights_that_are_all_zero_cannot_be() -> None:
    weights = Hyperparameters(w_mse=0, w_var=0)
    with pytest.raises(ConfigError, match="w_sord=0: at least one of w_sord, w_mse and w_var must be above 0"):
        study_of("w_sord=0,1", default=weights)


def test_values_come_and_go_wherever_the_field_is_moved() -> None:
    study = study_of("w_sord=1", "w_sord=1,3*masking=random", "patience=3")
    more = study.with_value("w_sord", 3).with_value("masking", "constant").with_value("patience", 7.0)
    assert more.panels[0].values == (1, 3, 10) and more.maps[0].across.values == (1, 3, 10)
    assert more.maps[0].down.values == ("none", "constant", "random")
    assert more.panels[1].values == (3, 5, 7)
    assert more.without_value("patience", 7).without_value("masking", "constant").panels[1] == study.panels[1]
    gone = more.without_value("w_sord", 3)
    assert gone.panels[0] == study.panels[0] and gone.maps[0].across.values == (1, 10)
    assert more.option_for("masking=constant") == "--value masking=constant"
    for change, key, value, message in (
        ("with_value", "w_sord", 1, "a value to add must be a new one, got w_sord=1 of 1, 10"),
        ("with_value", "w_sord", "random", "values of w_sord must be numbers, got 'random'"),
        ("with_value", "masking", 1.0, "masking must be one of none, constant, random, got 1.0"),
        ("with_value", "patience", 0.5, "patience must be a whole number >= 1, got 0.5"),
        ("with_value", "tau", 1.0, r"unknown field of this study's panels 'tau' \(known: masking, patience, w_sord\)"),
        ("with_value", "taw", 1.0, "unknown field 'taw'; did you mean 'tau'"),
        ("without_value", "w_sord", 5, "a value to cancel must be one of 1, 3, 10, got w_sord=5"),
        ("without_value", "w_sord", 10, "the default, which all points are compared with, must stay, got w_sord=10"),
        ("without_value", "masking", "none", "the default, .* must stay, got masking=none"),
        ("without_value", "patience", 3, "a panel must have a value besides the default, got patience 5"),
    ):
        with pytest.raises(ConfigError, match=message):
            getattr(study, change)(key, value)


def test_none_and_its_probability_leave_together() -> None:
    study = study_of("masking=none,constant*p_m=.1", default=RANDOM)
    for key, value in (("masking", "none"), ("mask_prob", 0)):
        with pytest.raises(ConfigError, match="masking none and p_m 0 go together"):
            study.without_value(key, value)
    assert list(study.with_value("mask_prob", 0.2).maps[0].cells)[0] == "none*0"


def test_many_panels_have_letters() -> None:
    fields = [name for name, field in FIELDS.items() if not field.words and name not in ("mask_prob", "t_max")]
    maps = [f"{one}=3*{other}=3" for one in fields[:4] for other in fields[4:9]]
    study = study_of(*(f"{name}={0.9 if name == 'dropout' else 3}" for name in fields), *maps)
    letters = [panel.letter for panel in (*study.panels, *study.maps)]
    assert len(set(letters)) == len(letters) > 26 and letters[25:27] == ["z", "aa"]
