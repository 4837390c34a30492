"""The command line: what it means, and one clear line for everything it refuses."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.data import CARDS
from adaptbin.errors import ConfigError
from sweeps import ablation, sensitivity
from sweeps.service.options import Options, parse_options, repository_root
from sweeps.service.panels import PANELS
from sweeps.service.parameter_types import parse_duration, parse_seeds
from sweeps.service.plan import Resources


def parse(words: str) -> Options:
    options = parse_options(words.split(), prog="sensitivity.py", about="Trains.", own_options=sensitivity.OPTIONS)
    assert options is not None
    return options


def test_defaults_are_the_papers() -> None:
    options = parse("--dataset eol")
    assert options.datasets == ("eol",)
    assert options.panels == tuple(PANELS)
    assert options.seeds == tuple(range(10))
    assert options.budget == Budget(epochs=1000, probe_epochs=100, probes=5)
    assert options.default == Hyperparameters()
    assert options.protocol == Protocol()
    assert (options.seeds_vary, options.test, options.pack, options.device) == ("pretrain", "wilcoxon", None, "cpu")
    assert options.resources == Resources(cpus=1, gpus=0)
    assert options.output == repository_root() / "mlruns"
    assert (options.root / "pyproject.toml").is_file()
    assert options.metrics == {"eol": "qwk"}


def test_quick_and_what_overrides_it() -> None:
    quick = parse("--dataset eol --preset quick")
    assert (len(quick.seeds), quick.budget.epochs, quick.budget.probe_epochs) == (3, 60, 30)
    mixed = parse("--preset quick --epochs 7 --dataset eol --seeds 2 --probe-epochs 5 --probes 1")
    assert (mixed.seeds, mixed.budget) == ((0, 1), Budget(epochs=7, probe_epochs=5, probes=1))


@pytest.mark.parametrize(
    "words", ["--dataset eol --dataset hfc", "--dataset eol,hfc", "--dataset eol hfc", "--dataset eol, hfc,eol"]
)
def test_several_data_sets(words: str) -> None:
    assert parse(words).datasets == ("eol", "hfc")
    assert parse(f"{words} --plan").plan


def test_all_data_sets_and_panels() -> None:
    options = parse("--dataset all --panel tau w_sord")
    assert options.datasets == ("ilpd", "hfc", "ctg", "esr", "eol", "mhr", "pt", "bfp")
    assert set(CARDS) - set(options.datasets) == {"breast_cancer", "diabetes"}
    assert options.panels == ("w_sord", "tau")
    assert parse("--dataset EOL --panel all").panels == tuple(PANELS)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", (0, 1, 2)), ("0,3,5", (0, 3, 5)), ("2-4", (2, 3, 4)), ("7,", (7,)), ("5,1-2,1", (1, 2, 5)), ("4 6", (4, 6))],
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200),
        ("90min", 5400),
        ("90m", 5400),
        ("1h30m", 5400),
        ("1h30", 3630),
        ("1 h 30 min", 5400),
        ("45s", 45),
        ("5400", 5400),
        ("0.5H", 1800),
        ("1h1m1s", 3661),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0", "0h", "-1h", "2d", "1m2h", "h", "inf", "nan", "1e3", "2h please"])
def test_times_nobody_can_keep(text: str) -> None:
    with pytest.raises(ConfigError, match="budget must be a time above 0 such as 2h, 90min, 1h30m, 45m or 5400"):
        parse_duration(text)


def test_a_budget_of_time_is_not_the_budget_of_epochs() -> None:
    assert parse("--dataset eol").time_limit is None
    options = parse("--dataset eol --budget 2h")
    assert (options.time_limit, options.budget) == (7200, Budget())
    with pytest.raises(ConfigError, match="--rebuild trains nothing, so it takes no --budget"):
        parse("--dataset eol --budget 2h --rebuild")


def test_a_script_without_an_option_keeps_its_field() -> None:
    options = parse_options(["--dataset", "eol"], prog="x", about="", own_options=())
    assert options is not None
    assert (options.panels, options.values, options.default) == ((), (), Hyperparameters())
    assert (options.choice_from, options.metric, options.show_test) == (None, None, False)
    assert (options.refine_every, options.t_max) == (None, None)
    assert options.metrics == {"eol": "qwk"} and "panel" not in options.given
    with pytest.raises(ConfigError, match="unknown option --panel"):
        parse_options(["--dataset", "eol", "--panel", "tau"], prog="x", about="", own_options=())


def test_a_choice_is_named_by_its_path() -> None:
    options = parse("--dataset eol --choice-from there")
    assert options.choice_from == Path("there").resolve() and "choice_from" not in options.given


@pytest.mark.parametrize(
    ("words", "refine_every", "t_max"),
    [
        ("", None, None),
        ("--t-max 20", None, (20,)),
        ("--t-max 20,30 --refine-every 3", 3, (20, 30)),
        ("--t-max 20 30 --refine-every 3", 3, (20, 30)),
        ("--t-max -1", None, (-1,)),  # a study says why not
    ],
)
def test_variants_of_an_ablation(words: str, refine_every: int | None, t_max: tuple[int, ...] | None) -> None:
    argv = ["--dataset", "eol", *words.split()]
    options = parse_options(argv, prog="ablation.py", about="", own_options=ablation.OPTIONS)
    assert options is not None
    assert (options.refine_every, options.t_max) == (refine_every, t_max)
    assert options.given.get("t_max") == (None if t_max is None else list(t_max))
    assert options.given.get("refine_every") == refine_every


@pytest.mark.parametrize("words", ["", "ten", "1.5", "10;20"])
def test_bounds_that_are_no_numbers(words: str) -> None:
    with pytest.raises(ConfigError, match="t-max must be whole numbers such as 10,50, got"):
        parse_options(["--dataset", "eol", "--t-max", words], prog="x", about="", own_options=ablation.OPTIONS)


def test_masking_brings_a_probability() -> None:
    assert parse("--dataset eol --masking random").default == Hyperparameters(masking="random", mask_prob=0.2)
    chosen = parse("--dataset eol --masking constant --mask-prob 0.3 --t-init 10").default
    assert chosen == Hyperparameters(masking="constant", mask_prob=0.3, t_init=10)


def test_single_choices_of_the_protocol() -> None:
    options = parse("--dataset eol --protocol released --switch decoder_depth=encoder --switch bin_cap=best")
    assert options.protocol == replace(Protocol.named("released"), decoder_depth="encoder", bin_cap="best")
    assert options.given["switch"] == [["decoder_depth", "encoder"], ["bin_cap", "best"]]
    assert {name: values[0] for name, values in Protocol.choices().items()} == asdict(Protocol()), "the usual one first"


def test_released_protocol_changes_the_primary_metric() -> None:
    assert parse("--dataset eol hfc --protocol released").metrics == {"eol": "qwk_alphabetical", "hfc": "auc"}
    asked = parse("--dataset eol mhr --metric accuracy")
    assert asked.metrics == {"eol": "accuracy", "mhr": "accuracy"}
    assert asked.primary == {"eol": "qwk", "mhr": "qwk"}


@pytest.mark.parametrize(
    ("words", "device", "gpus"),
    [("", "cpu", 0), ("--gpus-per-pack 0.25", "cuda", 0.25), ("--device cuda", "cuda", 1), ("--device cpu", "cpu", 0)],
)
def test_devices(words: str, device: str, gpus: float) -> None:
    options = parse(f"--dataset eol {words}")
    assert (options.device, options.resources.gpus) == (device, gpus)


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("--dataset eol --output here").output == tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse("--dataset eol --output ~/there").output == tmp_path / "there"


def test_what_was_typed_is_kept_for_the_manifest() -> None:
    given = parse("--dataset eol --preset quick --data-dir d --seeds 2").given
    assert given["dataset"] == ["eol"]
    assert (given["preset"], given["seeds"]) == ("quick", [0, 1])
    assert not {"metric", "data_dir", "output"} & given.keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "--dataset must be given; see --help"),
        ("--dataset eoll", "unknown data set 'eoll'; did you mean 'eol'?"),
        ("--dataset eol,hcf", "unknown data set 'hcf'; did you mean 'hfc'?"),
        ("--dataset ,", "data set must be one of ilpd, .* or all, got ','"),
        ("--datset eol", "unknown option --datset; did you mean '--dataset'?; see --help"),
        ("--dataset eol --panel taw", "unknown panel 'taw'; did you mean 'tau'?"),
        ("--dataset eol --preset fast", "unknown preset 'fast'"),
        ("--dataset eol --protocol papr", "unknown protocol 'papr'; did you mean 'paper'?"),
        (
            "--dataset eol --switch decoder_depth",
            "switch must be name=value, as decoder_depth=encoder, got 'decoder_dep",
        ),
        ("--dataset eol --switch decoder=encoder", "unknown switch 'decoder'; did you mean 'decoder_depth'?"),
        (
            "--dataset eol --switch bin_cap=nonee",
            "bin_cap must be one of best, none, got 'nonee'; did you mean 'none'?",
        ),
        (
            "--dataset eol --switch bin_cap=none --switch bin_cap=best",
            "a switch must be given once, got bin_cap as none and as best",
        ),
        ("--dataset eol --seeds-vary splits", "unknown seeds-vary 'splits'; did you mean 'split'?"),
        ("--dataset eol --masking randm", "unknown masking 'randm'; did you mean 'random'?"),
        ("--dataset eol --test anova", "unknown test 'anova'"),
        ("--dataset eol --device gpu", "unknown device 'gpu'"),
        ("--dataset eol --metric qkw", "unknown metric 'qkw'; did you mean 'qwk'?"),
        ("--dataset eol hfc --metric qwk", r"metric must be one that hfc \(binary\) has: auc, .*, got 'qwk'"),
        ("--dataset eol --seeds 0", "seeds must be a number n >= 1 .*, got '0'"),
        ("--dataset eol --seeds x", "seeds must be a number n >= 1 .*, got 'x'"),
        ("--dataset eol --seeds 4-2", "a range of seeds must go upwards, got '4-2'"),
        ("--dataset eol --epochs 0", "epochs must be a whole number >= 1, got 0"),
        ("--dataset eol --probes -1", "probes must be a whole number >= 1, got -1"),
        ("--dataset eol --epochs ten", "invalid value for '--epochs': 'ten' is not a valid integer"),
        ("--dataset eol --masking random --mask-prob 1", r"mask_prob must be in \[0, 1\), got 1.0"),
        ("--dataset eol --masking random --mask-prob -0.1", r"mask_prob must be in \[0, 1\), got -0.1"),
        ("--dataset eol --masking random --mask-prob nan", r"mask_prob must be in \[0, 1\), got nan"),
        ("--dataset eol --mask-prob 0.2", "mask_prob must be 0 with masking 'none'"),
        ("--dataset eol --masking random --mask-prob 0", "above 0 otherwise, got masking 'random' with mask_prob 0.0"),
        ("--dataset eol --t-init 1", "t_init must be a whole number >= 2, got 1"),
        ("--dataset eol --t-init 201", r"t_init must be at most t_max \(200\), got 201"),
        ("--dataset eol --pack 0", "pack must be a whole number >= 1, got 0"),
        ("--dataset eol --cpus-per-pack 0", "cpus per pack must be a finite number > 0, got 0.0"),
        ("--dataset eol --gpus-per-pack 1.5", "gpus per pack must be a share in"),
        ("--dataset eol --gpus-per-pack -1", "gpus per pack must be"),
        ("--dataset eol --gpus-per-pack 1 --device cpu", "exactly when the device is cuda, got 1 with cpu"),
        ("--dataset eol --gpus-per-pack 0 --device cuda", "exactly when the device is cuda, got 0 with cuda"),
        ("--dataset eol --plan --rebuild", "at most one of --plan and --rebuild may be given, got both"),
        ("--dataset eol --plan extra", "unexpected extra argument"),
        ("--dataset", "'--dataset' requires an argument"),
    ],
)
def test_what_is_refused(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")) as caught:
        parse(words)
    assert "\n" not in str(caught.value)


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        parse_options(["--help"], prog="sensitivity.py", about="Trains panels.", own_options=sensitivity.OPTIONS)
        is None
    )
    shown = capsys.readouterr().out
    for name in (
        *(
            "dataset",
            "preset",
            "seeds",
            "seeds-vary",
            "epochs",
            "probe-epochs",
            "probes",
            "panel",
            "masking",
            "choice-from",
        ),
        *("mask-prob", "t-init", "protocol", "test", "metric", "pack", "cpus-per-pack", "gpus-per-pack", "address"),
        *("device", "data-dir", "output", "tracking-uri", "plan", "rebuild", "choice-from"),
    ):
        assert f"--{name} " in shown
    assert "Trains panels." in shown
