"""What is searched: how it is written, what it refuses, and which points lie in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptbin.config import Architecture, Budget, Hyperparameters
from adaptbin.errors import ConfigError
from sweeps.service.points import Point
from sweeps.service.search_ranges import Choices, Range, parse_domain
from sweeps.service.search_space import FIELDS, Space, parse_asked, parse_fixed, read_space, settings_of, with_values

DEFAULT = Point(
    hyperparameters=Hyperparameters(), architecture=Architecture(width=96, depth=2, batch_size=64), budget=Budget()
)


def space(*asked: str, fixed: tuple[str, ...] = (), only_asked: bool = False) -> Space:
    return Space.of(DEFAULT, asked=parse_asked(asked), fixed=parse_fixed(fixed), only_asked=only_asked)


class TestTheUsualSpace:
    def test_it_has_every_field_and_the_default_lies_in_it(self) -> None:
        usual = space()
        assert list(usual.searched) == list(FIELDS)
        settings = settings_of(DEFAULT)
        chosen = usual.values_of(settings)
        assert chosen == {name: settings[name] for name in FIELDS if name != "mask_prob"}
        assert usual.point(chosen) == DEFAULT

    def test_the_width_of_the_data_set_is_one_of_the_choices(self) -> None:
        assert space().searched["width"] == Choices((64, 96, 128, 256, 512))

    def test_it_is_told_as_json(self) -> None:
        told = space(fixed=("tau=1e-4",)).to_json()
        assert json.loads(json.dumps(told)) == told and told["kept"] == {"tau": 1e-4}
        assert told != space(fixed=("tau=1e-3",)).to_json()


class TestOtherRanges:
    @pytest.mark.parametrize(
        ("field", "text", "domain"),
        [
            ("tau", "1e-5..1e-3,log", Range(low=1e-5, high=1e-3, log=True)),
            ("tau", "0..1", Range(low=0.0, high=1.0)),
            ("depth", "1..3", Range(low=1, high=3)),
            ("depth", "1, 3,5", Choices((1, 3, 5))),
            ("masking", "none,random", Choices(("none", "random"))),
            ("tau", [1e-5, "1e-4"], Choices((1e-5, 1e-4))),
            ("tau", {"low": "1e-5", "high": 1, "log": True}, Range(low=1e-5, high=1.0, log=True)),
            ("width", {"choices": [64, 128]}, Choices((64, 128))),
            ("width", 64.0, 64),
        ],
    )
    def test_how_they_are_written(self, field: str, text: object, domain: object) -> None:
        found = parse_domain(field, FIELDS[field].kind, text)
        assert found == domain and type(found) is type(domain)

    def test_what_is_fixed_is_not_searched(self) -> None:
        some = space("tau=1e-3,1e-2", fixed=("width=64", "masking=random"))
        assert "width" not in some.searched and "masking" not in some.searched and "mask_prob" in some.searched
        point = some.point({"tau": 1e-2, "mask_prob": 0.3})
        assert (point.architecture.width, point.hyperparameters.masking) == (64, "random")
        assert (point.hyperparameters.mask_prob, point.hyperparameters.tau) == (0.3, 1e-2)

    def test_p_m_is_only_tried_where_something_is_masked(self) -> None:
        some = space("masking=none,random", "mask_prob=0.1,0.2", "depth=1,2", only_asked=True)
        assert some.is_tried("mask_prob", {"masking": "random"}) and not some.is_tried("mask_prob", {"masking": "none"})
        assert some.point({"masking": "none", "depth": 1}).hyperparameters.mask_prob == 0.0
        grid = some.grid()
        assert len(grid) == len({some.point(chosen) for chosen in grid}) == 6

    def test_a_fixed_p_m_is_that_of_every_masking(self) -> None:
        some = space("masking=none,random", fixed=("mask_prob=0.35",), only_asked=True)
        assert some.point({"masking": "random"}).hyperparameters.mask_prob == 0.35
        assert some.values_of(settings_of(some.point({"masking": "random"}))) == {"masking": "random"}
        assert some.to_json()["kept"]["mask_prob"] == 0.35

    def test_a_file_says_the_same(self, tmp_path: Path) -> None:
        path = tmp_path / "space.yaml"
        path.write_text(
            "tau: 1e-5..1e-3,log\ndepth: [1, 2]\nwidth: 64\ndelta: {low: 1e-6, high: 1e-3, log: true}\nw_mse: 1e-1\n"
        )
        searched, fixed = read_space(path)
        assert searched == parse_asked(["tau=1e-5..1e-3,log", "depth=1,2", "delta=1e-6..1e-3,log"])
        assert fixed == {"width": 64, "w_mse": 0.1}

    def test_short_names_are_those_of_the_panels(self, tmp_path: Path) -> None:
        path = tmp_path / "space.yaml"
        path.write_text("lr: 1e-4..1e-3,log\np_m: 0.3\n")
        searched, fixed = read_space(path)
        assert searched == parse_asked(["lr=1e-4..1e-3,log"]) and [*searched] == ["learning_rate"]
        assert fixed == parse_fixed(["mask_prob=0.3"])
        with pytest.raises(ConfigError, match="each field must be given once, got two for learning_rate"):
            parse_asked(["lr=1e-4..1e-3,log", "learning_rate=1e-5..1e-3,log"])

    @given(st.lists(st.sampled_from(sorted(FIELDS)), unique=True), st.data())
    def test_a_point_of_the_space_lies_in_it(self, names: list[str], data: st.DataObject) -> None:
        usual = space()
        chosen = {}
        for name in names:
            domain = usual.searched[name]
            values = domain.values if isinstance(domain, Choices) else domain.ends
            chosen[name] = data.draw(st.sampled_from(values))
        point = usual.point(chosen)
        found = usual.values_of(settings_of(point))
        assert found is not None and usual.point(found) == point


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ("tao=1..2", "unknown field of a point 'tao'; did you mean 'tau'?"),
            ("batch_size=1..2", "unknown field of a point 'batch_size'"),
            ("tau", "tau: a field must be given as field=..., such as tau=1e-5..1e-3,log, got 'tau'"),
            ("tau=", "tau: a field must be given as field=..."),
            ("tau=2..1", "tau: a range must go upwards, got 2..1"),
            ("tau=0..1,log", "tau: a range with log must begin above 0, got 0..1,log"),
            ("tau=1..2,lin", "tau: after a range there may be log and nothing else, got '1..2,lin'"),
            ("tau=a,b", "tau: values must be finite numbers, written as low..high, low..high,log, or values such as"),
            ("tau=nan,1", "tau: values must be finite numbers"),
            ("width=1.5..3", "width: values must be whole numbers"),
            ("width=64,64", "width: choices must be two values or more, each once, got 64,64"),
            ("masking=none..random", "masking: words have no range"),
            ("tau=1e-3", "tau: one value is not searched but fixed, with --fix tau=0.001"),
        ],
    )
    def test_words(self, asked: str, message: str) -> None:
        with pytest.raises(ConfigError) as refused:
            parse_asked([asked])
        assert str(refused.value).startswith(message)

    @pytest.mark.parametrize(
        ("asked", "fixed", "message"),
        [
            (("tau=-1..1",), (), "tau must be a finite number >= 0, got -1.0"),
            (("width=0,8",), (), "width must be a whole number >= 1, got 0"),
            (("dropout=0.5,1",), (), r"dropout must be in \[0, 1\), got 1.0"),
            (("mask_prob=0.1..1",), (), r"mask_prob must be in \[0, 1\), got 1.0"),
            (("masking=none,randm",), (), "masking must be one of none, constant, random, got 'randm'; did you mean"),
            (
                ("t_init=2..50",),
                (),
                "t_init must be at most t_max everywhere in the space, got t_init up to 50 and t_m",
            ),
            ((), ("t_max=10",), "t_init must be at most t_max everywhere in the space, got t_init up to 20 and t_max"),
            (("tau=1,2",), ("tau=1",), "a field is either searched or fixed, got both for tau"),
            (("mask_prob=0.1,0.2",), ("masking=none",), "mask_prob can be searched where something is masked only"),
            ((), ("masking=none", "mask_prob=0.1"), "mask_prob can be fixed where something is masked only"),
            ((), tuple(f"{n}={v}" for n, v in settings_of(DEFAULT).items() if n != "mask_prob"), "a search must try"),
        ],
    )
    def test_spaces(self, asked: tuple[str, ...], fixed: tuple[str, ...], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            space(*asked, fixed=fixed)

    def test_a_grid_needs_values(self) -> None:
        with pytest.raises(ConfigError, match="a grid needs values such as tau=a,b,c, got the range tau=1..2"):
            space("tau=1..2", only_asked=True).grid()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "must have a line for each field"),
            ("- 1", "must have a line for each field"),
            ("tau: [1", "a space must be a YAML file"),
            ("tao: 1..2", "unknown field of a point 'tao'; did you mean 'tau'"),
            ("tau: {low: 1}", "tau: a range must have low and high, and may have log: true, got {'low': 1}"),
        ],
    )
    def test_files(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "space.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError) as refused:
            read_space(path)
        assert message in str(refused.value) and str(path) in str(refused.value)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="a space must be a YAML file, got .*No such file"):
            read_space(tmp_path / "no.yaml")


def test_a_point_outside_is_no_point_of_the_space() -> None:
    some = space("tau=1e-5..1e-3,log", fixed=("width=64",))
    inside = settings_of(with_values(some.default, {"tau": 1e-4}))
    assert some.values_of(inside) is not None
    assert some.values_of({**inside, "tau": 1e-2}) is None and some.values_of({**inside, "width": 128}) is None
