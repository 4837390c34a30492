"""Grids as they are typed or read from a file: what they mean, and one clear line for what they cannot."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from adaptbin.config import Architecture, Budget, Hyperparameters
from adaptbin.errors import ConfigError
from sweeps.service.own_grids import parse_grid, read_grids
from sweeps.service.panel_words import chosen_grids, read_value
from sweeps.service.point_fields import FIELDS, SHORT_NAMES, get_field, move
from sweeps.service.points import Point

GOOD = {
    "w_sord=1,3,10": (("w_sord", (1.0, 3.0, 10.0)),),
    "W_SORD = 1, 3 ,10": (("w_sord", (1.0, 3.0, 10.0)),),
    "w-sord=1 3": (("w_sord", (1.0, 3.0)),),
    "tau=1e-3": (("tau", (1e-3,)),),
    "lr=1e-4,1e-3": (("learning_rate", (1e-4, 1e-3)),),
    "wd=0,.1": (("weight_decay", (0.0, 0.1)),),
    "p_m=0.1,0.3": (("mask_prob", (0.1, 0.3)),),
    "bs=16,32": (("batch_size", (16, 32)),),
    "patience=3,5e1": (("patience", (3, 50)),),
    "patience=2.5": (("patience", (2.5,)),),  # the settings say why not
    "width=64,128": (("width", (64, 128)),),
    "depth=1,2": (("depth", (1, 2)),),
    "dropout=0,.2": (("dropout", (0.0, 0.2)),),
    "masking=random,None": (("masking", ("random", "none")),),
    "split_score=variance": (("split_score", ("variance",)),),
    "w_sord=1,3*tau=1e-4": (("w_sord", (1.0, 3.0)), ("tau", (1e-4,))),
    " masking=constant * p_m=.1,.3 ": (("masking", ("constant",)), ("mask_prob", (0.1, 0.3))),
}

RULE = "a grid must be given as field=values, such as w_sord=1,3,10 or w_sord=1,3,10*tau=1e-4,1e-3, or as a YAML file"
BAD = {
    "": RULE,
    "w_sord": RULE,
    "=1,3": RULE,
    "w_sord=1=3": RULE,
    "w_sord=1*": RULE,
    "*": RULE,
    "w_sord=": "values of w_sord must be at least one, each named once, got none",
    "w_sord=,": "values of w_sord must be at least one, each named once, got none",
    "w_sord=1,3,1.0": "values of w_sord must be at least one, each named once, got 1 2 times",
    "masking=none,none": "values of masking must be at least one, each named once, got none 2 times",
    "w_sort=1": "unknown field 'w_sort'; did you mean 'w_sord'?",
    "learning_rat=1": "unknown field 'learning_rat'; did you mean 'learning_rate'?",
    "encoder=mlp": "unknown field 'encoder'",
    "seed=1": "unknown field 'seed'",
    "pretext=none": "the pretext decides what a model is, so no panel moves it",
    "w_sord=one": "values of w_sord must be numbers, got 'one'",
    "patience=few": "values of patience must be whole numbers, got 'few'",
    "tau=1e-4..1e-2": "values of tau must be numbers, got '1e-4..1e-2'",
    "masking=randm": "masking must be one of none, constant, random, got 'randm'; did you mean 'random'?",
    "masking=1": "masking must be one of none, constant, random, got '1'",
    "w_sord=1*w_sord=3": "a grid must move one field, or two different ones, got w_sord, w_sord",
    "w_sord=1*tau=1*w_mse=1": "a grid must move one field, or two different ones, got w_sord, tau, w_mse",
    "nowhere.yaml": "a grid file must be readable YAML, got nowhere.yaml: ",
}


@pytest.mark.parametrize("text", GOOD)
def test_what_a_grid_means(text: str) -> None:
    (grid,) = read_grids(text)
    assert grid.sides == GOOD[text]
    assert [type(value) for _, values in grid.sides for value in values] == [
        type(value) for _, values in GOOD[text] for value in values
    ]
    assert parse_grid(str(grid)) == grid  # as the manifest tells it


@pytest.mark.parametrize("text", BAD)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_grids(text)
    assert BAD[text] in str(caught.value) and "\n" not in str(caught.value)


def test_every_field_of_a_point_can_be_moved_but_the_pretext() -> None:
    usual = {field.name for field in fields(Hyperparameters)} - {"pretext"}
    assert FIELDS.keys() == usual | {"width", "depth", "dropout", "batch_size"}
    point = Point(
        hyperparameters=Hyperparameters(masking="random", mask_prob=0.1),
        architecture=Architecture(width=8, depth=1, batch_size=16),
        budget=Budget(),
    )
    other = {"masking": "constant", "split_score": "variance", "t_max": 20, "dropout": 0.5, "mask_prob": 0.3}
    for name, field in FIELDS.items():
        value = other.get(name, 3)
        moved = move(point, {name: value})
        assert field.of(moved) == value and field.of(point) != value
        assert {n for n, f in FIELDS.items() if f.of(moved) != f.of(point)} == {name}
    assert all(get_field(short).name == name for short, name in SHORT_NAMES.items())


YAML = {
    "- w_sord: [1, 3]\n- lr: [1e-4, 0.001]": ["w_sord=1,3", "learning_rate=0.0001,0.001"],
    "w_sord: [1, 3]\ntau: 1e-3": ["w_sord=1,3", "tau=0.001"],
    "- {w_sord: [1, 3], tau: [1e-4]}": ["w_sord=1,3*tau=0.0001"],
    "- masking: [none, random]\n- w_mse=1,2*tau=.1": ["masking=none,random", "w_mse=1,2*tau=0.1"],
}
BAD_YAML = {
    "": "a grid file must hold a list of grids",
    "3": "a grid file must hold a list of grids",
    "[]": "a grid file must hold a list of grids",
    "- 3": "a grid must be a mapping of fields to values, got 3",
    "- {}": "a grid must be a mapping of fields to values",
    "- w_sord: [1, [2]]": "values of w_sord must be numbers or words",
    "- w_sord: [true]": "values of w_sord must be numbers or words, got [True]",
    "- w_sord: ": "values of w_sord must be numbers or words, got [None]",
    "- w_sort: 1": "did you mean 'w_sord'?",
    "- 1: 1": "unknown field '1'",
    "- {w_sord: 1, w_mse: 1, tau: 1}": "a grid must move one field, or two different ones",
    "- w_sord: [1\n": "a grid file must be readable YAML",
    "w_sord: 1\ntau: 1\nw_sord: 3": "a field must stand once in a mapping, got w_sord twice",
    "- w_sord: 1\n  tau: 1\n  w_sord: 3": "a field must stand once in a mapping, got w_sord twice",
    "- !!python/object/apply:os.getcwd []": "a grid file must be readable YAML",
}


@pytest.mark.parametrize("text", YAML)
def test_a_file_of_grids(text: str, tmp_path: Path) -> None:
    path = tmp_path / "grids.yaml"
    path.write_text(text, encoding="utf-8")
    assert [str(grid) for grid in read_grids(str(path))] == YAML[text]


@pytest.mark.parametrize("text", BAD_YAML)
def test_files_that_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "grids.yml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_grids(str(path))
    assert BAD_YAML[text] in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "grids.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="a grid file must be readable YAML"):
        read_grids(str(path))


def test_which_grids_are_chosen() -> None:
    grids = [parse_grid(text) for text in ("w_sord=1", "lr=1e-3", "w_sord=1*lr=1e-3")]
    assert chosen_grids(grids, []) == chosen_grids(grids, ["all"]) == tuple(grids)
    assert chosen_grids(grids, ["w_sord*lr", "lr"]) == (grids[1], grids[2])
    with pytest.raises(ConfigError, match=r"unknown panel 'tau' of the grids asked for .*\(known: w_sord, learning_r"):
        chosen_grids(grids, ["tau"])
    with pytest.raises(ConfigError, match="unknown field 'w_sor'; did you mean 'w_sord'"):
        chosen_grids(grids, ["w_sor"])
    with pytest.raises(ConfigError, match="at least one grid, each named once, got \\['w_sord', 'w_sord'\\]"):
        chosen_grids([parse_grid("w_sord=1"), parse_grid("w_sord=3")], [])


def test_one_more_value() -> None:
    assert read_value("lr=3e-4") == ("learning_rate", 3e-4)
    assert read_value("masking=random") == ("masking", "random")
    for text, message in (
        ("lr", "a value must be given as field=value, such as tau=0.003, got 'lr'"),
        ("lr=", "a value must be given as field=value"),
        ("lr=fast", "values of learning_rate must be numbers, got 'fast'"),
        ("lrr=1", "unknown field 'lrr'"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_value(text)
