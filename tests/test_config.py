"""Settings: ranges and unknown keys, an identity that misses nothing, and departures that name their switch."""

from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaptbin
from adaptbin import config
from adaptbin.config import SPLIT_SEED, Architecture, Budget, Finetuning, Hyperparameters, Protocol, Replica, Seeds
from adaptbin.errors import ConfigError

ARCHITECTURE = Architecture(width=128, depth=2, batch_size=64)

CHANGED: dict[type, dict[str, Any]] = {
    Architecture: {
        "width": 64,
        "depth": 3,
        "batch_size": 32,
        "dropout": 0.2,
        "encoder": "resnet",
        "encoder_settings": (("d_block", 64),),
    },
    Hyperparameters: {
        "w_sord": 1.0,
        "w_mse": 0.5,
        "w_var": 0.0,
        "patience": 20,
        "delta": 0.0,
        "tau": 1e-2,
        "min_bin": 16,
        "t_init": 10,
        "t_max": 100,
        "masking": "random",
        "mask_prob": 0.2,
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "refine_every": 6,
        "split_score": "variance",
        "pretext": "value_recon",
    },
    Protocol: {
        "label_order": "alphabetical",
        "mse_scale": "released",
        "unseen_category": "zero",
        "bin_cap": "none",
        "pretrain_schedule": "cosine",
        "probe_schedule": "cosine",
        "decoder_depth": "encoder",
        "plateau_scale": "weights",
        "br_bins": "one_less",
        "br_categorical": "binned",
    },
    Budget: {"epochs": 60, "probe_epochs": 30, "probes": 1},
    Finetuning: {"epochs": 10, "learning_rate": 1e-2, "weight_decay": 0.0, "schedule": "cosine"},
}
"""For every field of every settings class another valid value."""

PARTS: dict[str, type] = {
    "architecture": Architecture,
    "hyperparameters": Hyperparameters,
    "protocol": Protocol,
    "budget": Budget,
    "finetuning": Finetuning,
}


def make(**changes: Any) -> Replica:
    base: dict[str, Any] = {
        "dataset": "eol",
        "fingerprint": "f" * 64,
        "architecture": ARCHITECTURE,
        "hyperparameters": Hyperparameters(masking="constant", mask_prob=0.1),
        "seed": 3,
    }
    return Replica(**(base | changes))


def required(kind: type) -> dict[str, Any]:
    return {"width": 128, "depth": 2, "batch_size": 64} if kind is Architecture else {}


def test_the_lists_above_cover_every_field() -> None:
    """A field added to the settings fails here until the tests below know it."""
    configs = {one for one in vars(config).values() if isinstance(one, type) and issubclass(one, config._Config)}
    assert configs - {config._Config} == set(CHANGED) == set(PARTS.values())
    for kind, values in CHANGED.items():
        assert [field.name for field in fields(kind)] == list(values)
        default = kind(**required(kind))
        for name, value in values.items():
            assert getattr(default, name) != value


# --- identity


def all_variants() -> dict[str, Replica]:
    """The same replica with one field changed, for every field there is."""
    base = make()
    variants = {"nothing": base}
    for name, kind in PARTS.items():
        for key, value in CHANGED[kind].items():
            settings = {key: value} | ({"encoder": "tabnet"} if key == "encoder_settings" else {})
            variants[f"{name}.{key}"] = replace(base, **{name: replace(getattr(base, name) or kind(), **settings)})
    variants["finetuning"] = replace(base, finetuning=Finetuning())
    own: dict[str, Any] = {"dataset": "mhr", "fingerprint": "e" * 64, "seed": 4, "seeds_vary": "probe"}
    assert set(own) | set(PARTS) == {field.name for field in fields(Replica)}
    return variants | {name: replace(base, **{name: value}) for name, value in own.items()}


def test_the_id_changes_with_every_field() -> None:
    ids = {name: replica.id for name, replica in all_variants().items()}
    assert len(set(ids.values())) == len(ids)
    assert all(re.fullmatch("[0-9a-f]{24}", one) for one in ids.values())


def test_the_id_changes_with_the_method_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make()
    old_id, old_identity = before.id, before.identity()
    monkeypatch.setattr(config, "METHOD_VERSION", config.METHOD_VERSION + 1)
    assert make().id != old_id
    with pytest.raises(ConfigError, match=rf"method_version must be {config.METHOD_VERSION}, got "):
        Replica.from_identity(old_identity)


def test_an_encoder_that_changed_alone_has_a_version_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(version > config.METHOD_VERSION for version in config.ENCODER_VERSIONS.values())
    perceptron, other = make(), make(architecture=replace(ARCHITECTURE, encoder="tabnet"))
    ids, told = (perceptron.id, other.id), other.identity()
    monkeypatch.setitem(config.ENCODER_VERSIONS, "tabnet", 7)
    perceptron, other = make(), make(architecture=replace(ARCHITECTURE, encoder="tabnet"))
    assert perceptron.id == ids[0] and other.id != ids[1] and other.identity()["method_version"] == 7
    assert Replica.from_identity(other.identity()) == other
    with pytest.raises(ConfigError, match=f"method_version must be 7, got {config.METHOD_VERSION} with the encoder"):
        Replica.from_identity(told)


def test_every_replica_survives_the_way_through_a_file() -> None:
    for replica in all_variants().values():
        text = json.dumps(replica.identity(), allow_nan=False)
        again = Replica.from_identity(json.loads(text))
        assert again == replica and again.id == replica.id


@given(data=st.data())
def test_the_id_does_not_depend_on_the_order_of_keys(data: st.DataObject) -> None:
    def shuffled(values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {key: shuffled(values[key]) for key in data.draw(st.permutations(sorted(values)))}

    replica = make()
    assert Replica.from_identity(shuffled(replica.identity())).id == replica.id


def test_five_and_five_point_zero_are_one_setting() -> None:
    """For every number of every settings class; minus zero is zero as well."""
    compared = 0
    for name, kind in PARTS.items():
        whole = {key: value for key, value in CHANGED[kind].items() if isinstance(value, int)}
        real = {
            key: 1 if key in ("learning_rate", "w_sord") else 0
            for key in CHANGED[kind]
            if isinstance(CHANGED[kind][key], float)
        }
        real |= {"mask_prob": 0, "masking": "none"} if kind is Hyperparameters else {}
        if kind is Architecture:
            whole["encoder"], whole["encoder_settings"] = "resnet", (("d_block", 64),)
        plain = replace(make(), **{name: kind(**required(kind) | whole | real)})
        others = [
            {
                key: value if key == "encoder" else (("d_block", 64.0),) if key == "encoder_settings" else float(value)
                for key, value in whole.items()
            },
            {key: float(value) for key, value in real.items() if key != "masking"},
            {key: -0.0 for key, value in real.items() if value == 0},
        ]
        for other in others:
            again = replace(make(), **{name: kind(**required(kind) | whole | real | other)})
            assert again == plain and again.id == plain.id
            compared += len(other)
    assert compared > 25


def test_the_identity_of_the_default_is_fixed() -> None:
    """A change here makes every finished replica of a study be trained again: raise METHOD_VERSION on purpose only."""
    replica = Replica(
        dataset="eol", fingerprint="f", architecture=ARCHITECTURE, hyperparameters=Hyperparameters(), seed=0
    )
    assert replica.id == "80d1e998bc6b9c1edba41668"


@pytest.mark.parametrize(
    ("seeds_vary", "expected"),
    [
        ("pretrain", Seeds(split=SPLIT_SEED, pretrain=3, probe=3)),
        ("probe", Seeds(split=SPLIT_SEED, pretrain=0, probe=3)),
        ("split", Seeds(split=SPLIT_SEED + 3, pretrain=3, probe=3)),
    ],
)
def test_what_a_seed_feeds(seeds_vary: Any, expected: Seeds) -> None:
    assert make(seeds_vary=seeds_vary).seeds == expected


# --- values


def test_the_defaults_are_the_papers() -> None:
    paper = json.loads((Path(__file__).parent / "golden" / "paper_tables.json").read_text())
    defaults = Hyperparameters().to_dict()
    assert defaults == {
        "w_sord": 10.0, "w_mse": 0.1, "w_var": 0.001, "patience": 5, "delta": 1e-4, "tau": 1e-4, "min_bin": 32,
        "t_init": 2, "t_max": 200, "masking": "none", "mask_prob": 0.0, "learning_rate": 1e-4, "weight_decay": 1e-5,
    }  # fmt: skip
    assert {key: defaults[key] for key in paper["defaults"]} == paper["defaults"]
    for panel, grid in paper["sensitivity_grids"].items():
        assert defaults[panel] in grid
        assert len({make(hyperparameters=Hyperparameters(**{panel: value})).id for value in grid}) == len(grid)
    assert Budget().to_dict() == {"epochs": 1000, "probe_epochs": 100, "probes": 5}
    assert ARCHITECTURE.dropout == 0.1


NOT_NUMBERS = [float("nan"), float("inf"), -float("inf"), "1", None, True, [1]]
OUT_OF_RANGE: list[tuple[type, str, list[Any], str]] = [
    *[
        (Architecture, name, [0, -1, 1.5, *NOT_NUMBERS], "a whole number >= 1")
        for name in ("width", "depth", "batch_size")
    ],
    (Architecture, "dropout", [1, 1.5, -0.1, *NOT_NUMBERS], r"in \[0, 1\)"),
    *[
        (Hyperparameters, name, [-1e-9, -1, *NOT_NUMBERS], "a finite number >= 0")
        for name in ("w_sord", "w_mse", "w_var", "delta", "tau", "weight_decay")
    ],
    (Hyperparameters, "learning_rate", [0, -1e-4, *NOT_NUMBERS], "a finite number > 0"),
    *[(Hyperparameters, name, [0, -1, 2.5, *NOT_NUMBERS], "a whole number >= 1") for name in ("patience", "min_bin")],
    *[(Hyperparameters, name, [1, 0, 2.5, *NOT_NUMBERS], "a whole number >= 2") for name in ("t_init", "t_max")],
    (Hyperparameters, "refine_every", [-1, 2.5, *NOT_NUMBERS], "a whole number >= 0"),
    (Hyperparameters, "mask_prob", [-0.1, 1, 1.5, *NOT_NUMBERS], r"in \[0, 1\)"),
    (Budget, "epochs", [-1, 1.5, *NOT_NUMBERS], "a whole number >= 0"),
    *[(Budget, name, [0, -1, 1.5, *NOT_NUMBERS], "a whole number >= 1") for name in ("probe_epochs", "probes")],
    (Finetuning, "epochs", [0, -1, 1.5, *NOT_NUMBERS], "a whole number >= 1"),
    (Finetuning, "learning_rate", [0, -1e-4, *NOT_NUMBERS], "a finite number > 0"),
    (Finetuning, "weight_decay", [-1e-9, -1, *NOT_NUMBERS], "a finite number >= 0"),
]  # fmt: skip


def test_every_number_has_a_range() -> None:
    numbers = {
        (kind, name) for kind, values in CHANGED.items() for name, v in values.items() if not isinstance(v, str | tuple)
    }
    assert {(kind, name) for kind, name, _, _ in OUT_OF_RANGE} == numbers


@pytest.mark.parametrize(
    ("kind", "name", "values", "rule"), OUT_OF_RANGE, ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_number_out_of_range_is_refused(kind: type, name: str, values: list[Any], rule: str) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=rf"^{name} must be {rule}, got {re.escape(repr(value))}(\.0)?$"):
            kind(**required(kind) | {name: value})


def test_numbers_at_the_edge_of_their_range_are_fine() -> None:
    edge = Hyperparameters(
        w_sord=0, w_mse=0, w_var=1, patience=1, delta=0, tau=0, min_bin=1, t_init=2, t_max=2, weight_decay=0
    )
    assert edge.t_init == edge.t_max == 2
    Architecture(width=1, depth=1, batch_size=1, dropout=0)
    Budget(epochs=0, probe_epochs=1, probes=1)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"t_init must be at most t_max \(5\), got 6"):
        Hyperparameters(t_init=6, t_max=5)
    with pytest.raises(ConfigError, match="at least one of w_sord, w_mse and w_var must be above 0"):
        Hyperparameters(w_sord=0, w_mse=0, w_var=0)
    for point in ({"masking": "random"}, {"mask_prob": 0.1}, {"masking": "constant", "mask_prob": 0.0}):
        with pytest.raises(ConfigError, match="mask_prob must be 0 with masking 'none' and above 0 otherwise, got"):
            Hyperparameters.from_dict(point)
    for own, words in (({"refine_every": 6}, "0, got 6"), ({"split_score": "variance"}, "'product', got 'variance'")):
        Hyperparameters(pretext="adaptive_bin_recon", **own)
        with pytest.raises(ConfigError, match=rf"{next(iter(own))} says how adaptive bins are refined, .*be {words}$"):
            Hyperparameters(pretext="bin_recon", **own)


def test_what_is_not_pretrained_has_no_epochs_and_is_fine_tuned() -> None:
    scratch = {"hyperparameters": Hyperparameters(pretext="none"), "budget": Budget(epochs=0)}
    make(**scratch, finetuning=Finetuning())
    with pytest.raises(ConfigError, match="epochs must be 0 where nothing is pretrained, got 1000"):
        make(hyperparameters=Hyperparameters(pretext="none"), finetuning=Finetuning())
    with pytest.raises(ConfigError, match="not pretrained must be trained on labels, got no fine-tuning"):
        make(**scratch)
    with pytest.raises(ConfigError, match="epochs must be a whole number >= 1, got 0"):
        make(budget=Budget(epochs=0))
    for point in ({"tau": 1e-3}, {"masking": "constant", "mask_prob": 0.1}):
        idle = Hyperparameters.from_dict({"pretext": "none", **point})
        with pytest.raises(ConfigError, match="hyperparameters of pretraining must be at their defaults where there"):
            make(hyperparameters=idle, budget=Budget(epochs=0), finetuning=Finetuning())


def test_probes_decide_nothing_of_a_fine_tuned_model() -> None:
    tuned = make(finetuning=Finetuning())
    other = make(
        finetuning=Finetuning(),
        budget=Budget(probes=1, probe_epochs=7),
        protocol=Protocol.from_dict({"probe_schedule": "cosine"}),
    )
    assert tuned == other and tuned.id == other.id and Replica.from_identity(tuned.identity()) == tuned
    assert tuned.identity()["budget"] == {"epochs": 1000} and "finetuning" not in make().identity()


def test_settings_of_an_encoder() -> None:
    shape = {"width": 128, "depth": 2, "batch_size": 64}
    given = Architecture(**shape, encoder="resnet", encoder_settings={"n_blocks": 1, "d_block": 64})
    assert given.encoder_settings == (("d_block", 64), ("n_blocks", 1))
    assert given.to_dict() == shape | {
        "dropout": 0.1, "encoder": "resnet", "encoder_settings": {"d_block": 64, "n_blocks": 1},
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"encoder must be one of mlp, .*, got 'resnett'; did you mean 'resnet'\?"):
        Architecture(**shape, encoder="resnett")
    with pytest.raises(ConfigError, match="the mlp has width, depth and dropout and no other settings, got n_blocks"):
        Architecture(**shape, encoder_settings={"n_blocks": 1})
    wrong: Any
    for wrong in (None, [1], "abc", {3: 1}):
        with pytest.raises(
            ConfigError, match=f"encoder_settings must be numbers by name, got {re.escape(repr(wrong))}"
        ):
            Architecture(**shape, encoder="resnet", encoder_settings=wrong)
    with pytest.raises(ConfigError, match="n_blocks must be a finite number, got 'two'"):
        Architecture(**shape, encoder="resnet", encoder_settings={"n_blocks": "two"})


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0", None, 2**31])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"seed must be a whole number in \[0, 2147483648\), got {re.escape(repr(seed))}"
    ):
        make(seed=seed)


CHOICES = [(kind, name) for kind, values in CHANGED.items() for name, value in values.items() if isinstance(value, str)]


@pytest.mark.parametrize(("kind", "name"), CHOICES, ids=lambda x: x if isinstance(x, str) else "")
def test_an_unknown_choice_is_answered_with_the_nearest(kind: type, name: str) -> None:
    value = CHANGED[kind][name]
    with pytest.raises(ConfigError, match=f"{name} must be one of .*{value}.*, got '{value}x'; did you mean '{value}'"):
        kind(**required(kind) | {name: f"{value}x"})
    for other in (None, 1, []):
        with pytest.raises(ConfigError, match=f"{name} must be one of "):
            kind(**required(kind) | {name: other})


def test_what_a_seed_varies_is_a_choice_too() -> None:
    with pytest.raises(ConfigError, match="seeds_vary must be one of pretrain, probe, split, got 'probes'"):
        make(seeds_vary="probes")


def test_protocols_by_name() -> None:
    assert Protocol.named("paper") == Protocol()
    released = Protocol.named("released")
    flipped = {
        field.name for field in fields(Protocol) if getattr(released, field.name) != getattr(Protocol(), field.name)
    }
    assert flipped == {"label_order", "mse_scale", "unseen_category", "bin_cap"}
    with pytest.raises(
        ConfigError, match="protocol must be one of paper, released, got 'relased'; did you mean 'released'"
    ):
        Protocol.named("relased")


@pytest.mark.parametrize("kind", list(CHANGED), ids=lambda kind: kind.__name__)
def test_unknown_keys_are_refused_and_known_ones_come_back(kind: type[config._Config]) -> None:
    plain = kind(**required(kind))
    assert kind.from_dict(plain.to_dict()) == plain
    for name in CHANGED[kind]:
        with pytest.raises(ConfigError, match=f"unknown key '{name}s' for {kind.__name__}; did you mean '{name}'"):
            kind.from_dict(required(kind) | {f"{name}s": 1})


def test_unknown_keys_of_an_identity_are_refused_at_every_level() -> None:
    identity = make().identity()
    with pytest.raises(ConfigError, match="unknown key 'data_set' for Replica; did you mean 'dataset'"):
        Replica.from_identity(identity | {"data_set": "eol"})
    for name, kind in PARTS.items():
        with pytest.raises(ConfigError, match=f"unknown key 'zzz' for {kind.__name__} "):
            Replica.from_identity(identity | {name: identity.get(name, {}) | {"zzz": 1}})
    del identity["method_version"]
    with pytest.raises(ConfigError, match="method_version must be .*, got None"):
        Replica.from_identity(identity)


def test_settings_are_frozen_and_keyword_only() -> None:
    for kind, values in CHANGED.items():
        one = kind(**required(kind))
        for name, value in values.items():
            with pytest.raises(FrozenInstanceError):
                setattr(one, name, value)
        with pytest.raises(TypeError, match="positional"):
            kind(1)


# --- departures


def departures() -> list[tuple[str, str]]:
    """Every `# DIFF[...]` tag in the library: where it stands, and its whole comment."""
    found = []
    for path in sorted(Path(adaptbin.__file__).parent.rglob("*.py")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if "# DIFF[" in line:
                block = [line.strip()]
                for following in lines[number + 1 :]:
                    if not following.strip().startswith("#"):
                        break
                    block.append(following.strip())
                found.append((f"{path.name}:{number + 1}", " ".join(part.lstrip("# ") for part in block)))
    return found


def test_every_departure_says_whose_it_is_and_names_its_switch() -> None:
    switches = {field.name for field in fields(Protocol)}
    named = set()
    for where, comment in departures():
        assert re.match(r"DIFF\[(paper->released|released->ours)\] ", comment), where
        here = {name for name in switches if re.search(rf"\b{name}\b", comment)}
        assert here or "there is no switch" in comment, f"{where} names no switch of Protocol: {comment}"
        named |= here
    released = Protocol.named("released")
    flipped = {name for name in switches if getattr(released, name) != getattr(Protocol(), name)}
    assert flipped <= named, f"departures without a tag in the code: {sorted(flipped - named)}"
