"""A choice as a file: the round trip, every condition it is held to, and the default points it gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adaptbin.config import ENCODER_VERSIONS, METHOD_VERSION, Budget, Hyperparameters, Protocol
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from sweeps import sensitivity
from sweeps.service.choice import CHOSEN_FIELDS, Choice, choices_for, read_choice, write_choice
from sweeps.service.notes import protocol_notes
from sweeps.service.options import Options, parse_options
from sweeps.service.panels import Panel, SensitivityStudy, get_panels

CHOSEN = Hyperparameters(masking="random", mask_prob=0.2, t_init=10)
OF_BIN_RECON = replace(CHOSEN, pretext="bin_recon")


def choice_of(dataset: str = "eol", **changes: Any) -> Choice:
    card = get_card(dataset)
    usual = Choice(
        dataset=dataset,
        fingerprint=card.fingerprint,
        architecture=card.architecture,
        protocol=Protocol(),
        budget=Budget(),
        seeds=tuple(range(10)),
        seeds_vary="pretrain",
        metric=card.primary_metric,
        higher_is_better=card.primary_metric != "rmse",
        hyperparameters=CHOSEN,
        val_mean=0.9123456789012345,
        points_compared=14,
        points_diverged=1,
    )
    return replace(usual, **changes)


def options_of(words: str) -> Options:
    options = parse_options(words.split(), prog="sensitivity.py", about="", own_options=sensitivity.OPTIONS)
    assert options is not None
    return options


def found(words: str) -> dict[str, Choice]:
    options = options_of(words)
    return choices_for(options, [get_card(name) for name in options.datasets])


def test_a_choice_survives_its_file_to_the_last_digit(tmp_path: Path) -> None:
    written = write_choice(choice_of(seeds=(0, 3)), tmp_path)
    assert written == tmp_path / "choice.json"
    back = read_choice(written)
    assert back == choice_of(seeds=(0, 3)) and back.path == written
    told = json.loads(written.read_text())
    assert told["schema"] == 1 and told["hyperparameters"] == CHOSEN.to_dict() and told["seeds"] == [0, 3]
    assert str(tmp_path) not in written.read_text()


def test_a_file_or_an_output_folder_may_be_named(tmp_path: Path) -> None:
    for name in ("eol", "hfc"):
        write_choice(choice_of(name), tmp_path / "masking" / name)
    assert found(f"--dataset eol,hfc --choice-from {tmp_path}") == {"eol": choice_of("eol"), "hfc": choice_of("hfc")}
    assert found(f"--dataset hfc --choice-from {tmp_path}/masking/hfc/choice.json") == {"hfc": choice_of("hfc")}
    assert found("--dataset eol") == {}
    for wrong in (tmp_path / "masking" / "eol", tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="choice-from must be a choice.json, or a folder that holds masking/eol/"):
            found(f"--dataset eol --choice-from {wrong}")


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({}, "--dataset hfc", "made for the data set of the study that takes it over, hfc, got eol in"),
        ({"fingerprint": "0" * 64}, "", f"table fingerprint .*, {get_card('eol').fingerprint}, got {'0' * 64} in"),
        ({"method_version": 1}, "", f"made for the method version .*, {METHOD_VERSION}, got 1 in"),
        ({"architecture": replace(get_card("eol").architecture, width=8)}, "", "the architecture .*, width 128, got w"),
        (
            {"protocol": Protocol.named("released")},
            "",
            "the protocol .*, label_order clinical, .*, got label_order alph",
        ),
        ({"hyperparameters": OF_BIN_RECON}, "", "made for the pretext .*, adaptive_binning, got bin_recon in"),
        ({}, "--protocol released", "the protocol .*, label_order alphabetical, .*, got label_order clinical"),
        ({"budget": Budget(epochs=60)}, "", "the budget of .*, epochs 1000, got epochs 60 in"),
        ({}, "--preset quick", "the budget .*, epochs 60, probe_epochs 30, got epochs 1000, probe_epochs 100 in"),
        ({}, "--probes 1", "the budget .*, probes 1, got probes 5"),
        ({"seeds_vary": "probe"}, "", "the seeds-vary .*, pretrain, got probe in"),
        ({"metric": "accuracy"}, "", "the metric .*, qwk, got accuracy in"),
        ({"higher_is_better": False}, "", "the direction .*, higher is better, got lower is better in"),
    ],
)
def test_other_conditions_are_refused(tmp_path: Path, changes: dict[str, Any], words: str, message: str) -> None:
    path = write_choice(choice_of(**changes), tmp_path)
    words = words if "--dataset" in words else f"--dataset eol {words}"
    with pytest.raises(ConfigError, match=f"a choice must be .*{message}") as caught:
        found(f"{words} --choice-from {path}")
    assert "\n" not in str(caught.value)


def test_a_choice_is_of_the_version_of_its_encoder() -> None:
    (encoder, version), *_ = ENCODER_VERSIONS.items()
    architecture = replace(get_card("eol").architecture, encoder=encoder)
    card = replace(get_card("eol"), architecture=architecture)
    conditions: dict[str, Any] = dict(protocol=Protocol(), budget=Budget(), seeds_vary="pretrain", metric="qwk")
    choice_of(architecture=architecture, method_version=version).require_fit(card, **conditions)
    with pytest.raises(ConfigError, match=f"made for the method version .*, {version}, got {METHOD_VERSION} in"):
        choice_of(architecture=architecture).require_fit(card, **conditions)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"schema": 2}, "schema of a choice must be 1, got 2 in"),
        ({"schema": None}, "schema of a choice must be 1, got None in"),
        ({"extra": 1}, "it must hold architecture, .*, got architecture, .*extra"),
        ({"budget": {"epochs": -1}}, "epochs must be a whole number >= 0, got -1"),
        ({"budget": {"epoch": 1}}, "unknown key 'epoch' for Budget; did you mean 'epochs'"),
        ({"budget": 3}, "a choice must be a file that masking.py has written, got"),
        ({"architecture": {}}, "a choice must be a file that masking.py has written, got"),
        ({"seeds": []}, r"seeds must be whole numbers, at least one, got \[\]"),
        ({"seeds": ["a"]}, "seeds must be whole numbers"),
        ({"seeds_vary": "everything"}, "seeds_vary must be one of pretrain, probe, split, got 'everything'"),
        ({"val_mean": "high"}, "val_mean must be a finite number, got 'high'"),
        (
            {"hyperparameters": {"tau": 0.5}},
            "masking, mask_prob, t_init must be at the default, tau 0.0001, got tau 0.5",
        ),
        ({"hyperparameters": {"masking": "random"}}, "mask_prob must be 0 with masking 'none'"),
    ],
)
def test_files_that_hold_no_choice_are_refused(tmp_path: Path, edit: dict[str, Any], message: str) -> None:
    path = tmp_path / "choice.json"
    path.write_text(json.dumps(choice_of().to_dict() | edit))
    with pytest.raises(ConfigError, match=message):
        read_choice(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}"])
def test_files_that_hold_something_else_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "choice.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"a choice must be a file that masking.py has written, got {path}"):
        read_choice(path)
    with pytest.raises(ConfigError, match="a choice must be a file that masking.py has written, got"):
        read_choice(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    ("word", "named"), [("--masking none", "--masking"), ("--mask-prob 0.1", "--mask-prob"), ("--t-init 2", "--t-init")]
)
def test_a_default_is_typed_or_chosen_but_not_both(word: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"--choice-from sets masking, mask_prob, t_init, .*, got {named}$"):
        options_of(f"--dataset eol --choice-from here {word}")


def test_each_data_set_has_its_own_default() -> None:
    choices = {"eol": choice_of(), "hfc": choice_of("hfc", hyperparameters=Hyperparameters())}
    cards = [get_card(name) for name in ("eol", "hfc", "ilpd")]
    study = SensitivityStudy(cards=tuple(cards), panels=get_panels(["tau"]), choices=choices, seeds=(0, 1))
    assert study.default_of("eol") == CHOSEN
    assert study.default_of("hfc") == study.default_of("ilpd") == study.default == Hyperparameters()
    for name in study.datasets:
        assert study.unique_points_of(name)[0] == study.default_of(name)
        assert [point.is_default for point in study.points[name]] == [False, True, False, False, False]
        for point in study.points[name]:
            assert {field: getattr(point.hyperparameters, field) for field in CHOSEN_FIELDS} == {
                field: getattr(study.default_of(name), field) for field in CHOSEN_FIELDS
            }
    plain = SensitivityStudy(cards=tuple(cards), panels=get_panels(["tau"]), seeds=(0, 1))
    assert study.replicas["hfc"] == plain.replicas["hfc"]
    assert not {replica.id for replica in study.replicas["eol"]} & {replica.id for replica in plain.replicas["eol"]}
    assert study.only("eol").choices.keys() == {"eol"} and study.only("eol").default_of("eol") == CHOSEN
    # What is typed for all data sets stays with those for which nothing was chosen.
    other = SensitivityStudy(cards=tuple(cards), default=Hyperparameters(patience=7), choices=choices)
    assert (other.default_of("eol").patience, other.default_of("ilpd").patience) == (7, 7)


def test_a_panel_that_moves_what_was_chosen_holds_all_defaults() -> None:
    panel = Panel("t_init", "T", "t_init", (5,), "a")
    study = SensitivityStudy(
        cards=(get_card("eol"), get_card("hfc")), panels=(panel,), choices={"eol": choice_of()}, seeds=(0,)
    )
    assert study.panels[0].values == (2, 5, 10) and study.default_values(study.panels[0]) == (2, 10)
    assert [point.is_default for point in study.points["eol"]] == [False, False, True]
    assert [point.is_default for point in study.points["hfc"]] == [True, False, False]
    for value in (2, 10):
        with pytest.raises(ConfigError, match="the default, which all points are compared with, must stay"):
            study.without_value("t_init", value)


@pytest.mark.parametrize(
    ("seeds", "with_seeds"),
    [
        (range(10), "the same seeds"),
        (range(3), "seeds 0 to 2 (here seeds 0 to 9)"),
        ((4,), "seed 4 (here seeds 0 to 9)"),
    ],
)
def test_other_seeds_are_allowed_and_told(tmp_path: Path, seeds: Any, with_seeds: str) -> None:
    path = write_choice(choice_of(seeds=tuple(seeds)), tmp_path)
    study = sensitivity.study(options_of(f"--dataset eol --choice-from {path}"))
    assert study.default_of("eol") == CHOSEN
    assert protocol_notes(study) == (
        f"Default point of eol, chosen on validation with {with_seeds}: masking random, mask_prob 0.2, t_init 10",
    )
