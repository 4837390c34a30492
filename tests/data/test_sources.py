"""Where a table is looked for, in which order, and what is said when it is nowhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from adaptbin.data import CARDS, ENVIRONMENT, cache_folder, find_file, load_table
from adaptbin.data.extras import require
from adaptbin.errors import ConfigError, DataError, DataNotFoundError, ResourceError
from tests.data import toy


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)


def put(folder: Path, name: str = f"toy/{toy.FILE}", content: str | None = None) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(toy.text() if content is None else content)
    return path


@pytest.mark.parametrize("name", [f"toy/{toy.FILE}", "toy/toy.csv", toy.FILE, "toy.csv", "toy/Renamed (1).CSV"])
def test_a_file_may_lie_in_several_places(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, name)
    assert find_file(toy.CARD, tmp_path) == path
    assert load_table(toy.CARD, data_dir=tmp_path, download=False).path == path


def test_other_files_are_not_taken(tmp_path: Path) -> None:
    for name in ("other.csv", "toy/notes.txt", "toy/deeper/toy.csv", "toy/folder.csv/x"):
        put(tmp_path, name)
    assert find_file(toy.CARD, tmp_path) is None


def test_known_names_come_before_others(tmp_path: Path) -> None:
    put(tmp_path, "toy/a.csv")
    plain = put(tmp_path, "toy.csv")
    assert find_file(toy.CARD, tmp_path) == plain
    assert find_file(toy.CARD, tmp_path) != put(tmp_path, f"toy/{toy.FILE}") == find_file(toy.CARD, tmp_path)


def test_the_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, named, cache = (put(tmp_path / place).parents[1] for place in ("given", "named", "cache"))
    monkeypatch.setenv(ENVIRONMENT, str(named))
    for folder in (given, named, cache):
        table = load_table(toy.CARD, data_dir=given, cache_dir=cache, download=False)
        assert table.path == folder / "toy" / toy.FILE
        table.path.unlink()
    with pytest.raises(DataNotFoundError, match=f"Looked in: {given}, {named}, {cache}; downloading is switched off"):
        load_table(toy.CARD, data_dir=given, cache_dir=cache, download=False)


def test_a_wrong_file_is_not_passed_over(tmp_path: Path) -> None:
    wrong, right = put(tmp_path / "a", content=toy.text(rows=toy.cells()[:-1])), put(tmp_path / "b")
    with pytest.raises(DataError, match=f"toy: {wrong} holds 39 complete rows"):
        load_table(toy.CARD, data_dir=wrong.parents[1], cache_dir=right.parents[1])


def test_absent_files_get_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError) as caught:
        load_table("eol", data_dir=tmp_path, cache_dir=tmp_path / "cache", download=False)
    message = str(caught.value)
    for part in (
        "eol: no data file. Put 'ObesityDataSet_raw_and_data_sinthetic.csv' into DIR/eol/ (or DIR itself)",
        "pass --data-dir DIR or set ADAPTBIN_DATA=DIR",
        "Get it from https://archive.ics.uci.edu/dataset/544",
        "Data sets that need no file: breast_cancer, diabetes",
    ):
        assert part in message
    assert not (tmp_path / "cache").exists()
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize(("key", "page"), [("esr", "harunshimanto"), ("bfp", "fedesoriano")])
def test_what_nobody_serves_says_where_to_get_it(key: str, page: str, tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=f"{key}: no data file.*{page}.*; it cannot be downloaded"):
        load_table(key, cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(DataNotFoundError, match=f"toy: the data folder must be an existing folder, got '{absent}'"):
        load_table(toy.CARD, data_dir=absent)
    monkeypatch.setenv(ENVIRONMENT, str(absent))
    with pytest.raises(DataNotFoundError, match=rf"toy: \$ADAPTBIN_DATA must be an existing folder, got '{absent}'"):
        load_table(toy.CARD)
    put(tmp_path / "given")
    assert load_table(toy.CARD, data_dir=tmp_path / "given").fingerprint == toy.CARD.fingerprint


def test_embedded_tables_need_no_folder(tmp_path: Path) -> None:
    table = load_table("diabetes", data_dir=tmp_path / "absent", cache_dir=tmp_path / "absent", download=False)
    assert table.fingerprint == CARDS["diabetes"].fingerprint
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name() -> None:
    with pytest.raises(ConfigError, match="unknown data set 'diabetis'; did you mean 'diabetes'"):
        load_table("diabetis")


def test_the_cache_is_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name, appauthor: tmp_path / name)
    assert cache_folder() == tmp_path / "adaptbin" / "data"
    put(cache_folder())
    assert load_table(toy.CARD, download=False).path == cache_folder() / "toy" / toy.FILE


def test_a_missing_extra_says_how_to_install_it() -> None:
    with pytest.raises(ResourceError, match=r"pip install 'adaptbin\[data\]'\): no_such_module is not installed"):
        require("no_such_module")


def test_a_card_of_one_s_own(tmp_path: Path) -> None:
    put(tmp_path)
    card = dataclasses.replace(toy.CARD, title="Mine")
    assert load_table(card, data_dir=tmp_path).card.title == "Mine"
