"""Which tables a report takes, and which it refuses."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from adaptbin.config import ENCODER_VERSIONS, METHOD_VERSION, Protocol
from adaptbin.errors import ConfigError, DataError
from sweeps.service.report_sources import FULL, find_sources
from sweeps.service.report_tables import Report
from tests.service.report_folders import (
    REDUCED,
    ablation_tables,
    alternatives_table,
    benchmark_table,
    change_manifest,
    finetune_tables,
    sensitivity_tables,
    write_study,
)

PAPER = Protocol()
TAU = {("tau", 1e-3): -0.02}


def test_every_study_is_found_in_its_folder_and_the_others_are_not_run(tmp_path: Path) -> None:
    write_study(tmp_path, "benchmark", "hfc", {"table": benchmark_table("hfc")})
    write_study(tmp_path, "ablation", "hfc", ablation_tables("hfc"))
    write_study(tmp_path, "alternatives", "eol", alternatives_table("eol"))
    sources = find_sources([tmp_path], ["eol", "hfc"], PAPER)
    assert set(sources.found) == {("benchmark", "hfc"), ("ablation", "hfc"), ("alternatives", "eol")}
    assert [source.name for source in sources.of("ablation")] == ["ablation of hfc"]
    assert sources.not_run("sensitivity") == ["eol", "hfc"] and sources.not_run("benchmark") == ["eol"]


def test_older_results_have_one_default(tmp_path: Path) -> None:
    place = write_study(tmp_path, "sensitivity", "eol", sensitivity_tables("eol", TAU))
    change_manifest(place, method_version=None, defaults=None, default={"masking": "random", "mask_prob": 0.2})
    (source,) = find_sources([tmp_path], ["eol"], PAPER).of("sensitivity")
    assert source.default.masking == "random"


def test_an_encoder_that_changed_alone_is_of_its_own_version(tmp_path: Path) -> None:
    (encoder, version), *_ = ENCODER_VERSIONS.items()
    write_study(tmp_path, "finetune", "hfc", finetune_tables("hfc"), arms={"encoder": ["mlp", "resnet"]})
    assert find_sources([tmp_path], ["hfc"], PAPER).of("finetune")
    arms = {"encoder": ["mlp", encoder]}
    write_study(tmp_path, "finetune", "hfc", finetune_tables("hfc"), arms=arms, encoder_versions={encoder: version})
    assert find_sources([tmp_path], ["hfc"], PAPER).of("finetune")
    write_study(tmp_path, "finetune", "hfc", finetune_tables("hfc"), arms=arms)
    with pytest.raises(
        ConfigError, match=f"must have its method version of {encoder}, {version}, got {METHOD_VERSION}"
    ):
        find_sources([tmp_path], ["hfc"], PAPER)


def test_a_study_whose_first_table_is_not_there_counts_as_not_run(tmp_path: Path) -> None:
    place = write_study(tmp_path, "benchmark", "hfc", {"table": benchmark_table("hfc")})
    write_study(tmp_path, "ablation", "hfc", ablation_tables("hfc"))
    (place / "table.csv").unlink()
    assert find_sources([tmp_path], ["hfc"], PAPER).not_run("benchmark") == ["hfc"]


def test_the_first_of_two_folders_counts_and_the_other_is_told(tmp_path: Path) -> None:
    for folder, notes in (("full", []), ("quick", [REDUCED])):
        write_study(tmp_path / folder, "sensitivity", "eol", sensitivity_tables("eol", TAU), notes=notes)
    for first, second, protocol in (("full", "quick", FULL), ("quick", "full", REDUCED)):
        sources = find_sources([tmp_path / first, tmp_path / second], ["eol"], PAPER)
        assert sources.found["sensitivity", "eol"].protocol == protocol
        assert [source.folder.parts[-3] for source in sources.left_out] == [second]


def test_notes_name_the_protocol_but_for_the_default_point(tmp_path: Path) -> None:
    notes = [REDUCED, "Seeds vary the split too", "Default point of eol, chosen on validation with the same seeds: ..."]
    notes.append("Pretexts of eol, not tuned: ...")
    write_study(tmp_path, "sensitivity", "eol", sensitivity_tables("eol", TAU), notes=notes)
    (source,) = find_sources([tmp_path], ["eol"], PAPER).of("sensitivity")
    assert source.protocol == f"{REDUCED}; Seeds vary the split too"


def test_tables_of_several_data_sets_are_no_source_of_their_own(tmp_path: Path) -> None:
    joint = {"table": pd.concat([benchmark_table(name) for name in ("eol", "hfc")])}
    write_study(tmp_path, "benchmark", ["eol", "hfc"], joint)
    with pytest.raises(ConfigError, match=r"got .* with tables of benchmark of eol\+hfc alone"):
        find_sources([tmp_path], ["eol", "hfc"], PAPER)
    write_study(tmp_path, "benchmark", "eol", {"table": benchmark_table("eol")})
    assert list(find_sources([tmp_path], ["eol", "hfc"], PAPER).found) == [("benchmark", "eol")]


def test_other_files_are_no_concern(tmp_path: Path) -> None:
    write_study(tmp_path, "alternatives", "eol", alternatives_table("eol"))
    for name, text in (("other", '{"study": "finetune"}'), ("list", "[1]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(text)
    assert list(find_sources([tmp_path], ["eol"], PAPER).found) == [("alternatives", "eol")]


class TestRefused:
    def test_a_folder_without_tables(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"a results folder must hold tables of benchmark, .* got .* with none"):
            find_sources([tmp_path], ["eol"], PAPER)

    def test_a_folder_with_tables_of_other_data_sets(self, tmp_path: Path) -> None:
        write_study(tmp_path, "alternatives", "hfc", alternatives_table("hfc"))
        with pytest.raises(ConfigError, match=r"for eol, got .* with tables of alternatives of hfc alone"):
            find_sources([tmp_path], ["eol"], PAPER)

    def test_another_method_version(self, tmp_path: Path) -> None:
        write_study(tmp_path, "sensitivity", "eol", sensitivity_tables("eol", TAU), method_version=1)
        with pytest.raises(ConfigError, match=r"must have its method version, 2, got 1 in .*sensitivity/eol"):
            find_sources([tmp_path], ["eol"], PAPER)

    def test_another_protocol(self, tmp_path: Path) -> None:
        released = Protocol.named("released")
        change = {"protocol": released.to_dict(), "metrics": {"eol": "qwk_alphabetical"}}
        write_study(tmp_path, "sensitivity", "eol", sensitivity_tables("eol", TAU), **change)
        with pytest.raises(ConfigError, match=r"its protocol's label_order, clinical, got alphabetical in"):
            find_sources([tmp_path], ["eol"], PAPER)
        assert find_sources([tmp_path], ["eol"], released).not_run("sensitivity") == []

    def test_another_table(self, tmp_path: Path) -> None:
        write_study(
            tmp_path, "sensitivity", "eol", sensitivity_tables("eol", TAU), tables={"eol": {"fingerprint": "0" * 64}}
        )
        with pytest.raises(ConfigError, match=r"must have its fingerprint of the eol table, e4ac\w+, got 0000"):
            find_sources([tmp_path], ["eol"], PAPER)

    def test_another_metric(self, tmp_path: Path) -> None:
        write_study(tmp_path, "sensitivity", "eol", sensitivity_tables("eol", TAU), metrics={"eol": "accuracy"})
        with pytest.raises(ConfigError, match="its primary metric of eol, qwk, got accuracy in"):
            find_sources([tmp_path], ["eol"], PAPER)

    def test_a_choice_of_another_method_version(self, tmp_path: Path) -> None:
        place = write_study(tmp_path, "masking", "eol", {"points": pd.DataFrame({"dataset": []})})
        (place / "choice.json").write_text('{"schema": 1}')
        with pytest.raises(ConfigError, match="a choice must be a file that masking.py has written"):
            find_sources([tmp_path], ["eol"], PAPER)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "a manifest must be a JSON file, got"),
            ('{"study": "ablation"}', "the manifest of a study must have tables, protocol, metrics, got"),
        ],
    )
    def test_a_manifest_that_is_none(self, tmp_path: Path, text: str, message: str) -> None:
        place = write_study(tmp_path, "ablation", "eol", ablation_tables("eol"))
        (place / "manifest.json").write_text(text)
        with pytest.raises(DataError, match=message):
            find_sources([tmp_path], ["eol"], PAPER)

    def test_a_manifest_without_defaults(self, tmp_path: Path) -> None:
        place = write_study(tmp_path, "ablation", "eol", ablation_tables("eol"))
        change_manifest(place, defaults=None)
        with pytest.raises(DataError, match="the manifest of study ablation must have defaults, got"):
            Report.of(find_sources([tmp_path], ["eol"], PAPER))

    @pytest.mark.parametrize(
        ("text", "message"),
        [("", "a table must be a CSV file, got"), ("dataset,n\neol,3\n", "must have columns metric, n_diverged, mean")],
    )
    def test_a_table_that_is_none(self, tmp_path: Path, text: str, message: str) -> None:
        place = write_study(tmp_path, "ablation", "eol", ablation_tables("eol"))
        (place / "points.csv").write_text(text)
        with pytest.raises(DataError, match=message):
            Report.of(find_sources([tmp_path], ["eol"], PAPER))
