"""The error tree, and the words that every refusal shares."""

from __future__ import annotations

import inspect

import pytest

from adaptbin import errors
from adaptbin.errors import AdaptBinError, nearest, unknown

BUILTINS = {
    "ConfigError": ValueError,
    "DataError": ValueError,
    "DataNotFoundError": FileNotFoundError,
    "ShapeError": ValueError,
    "ResourceError": RuntimeError,
    "TrainingError": RuntimeError,
}


def test_every_error_is_ours_and_the_builtin_a_caller_expects() -> None:
    classes = {
        name: one
        for name, one in vars(errors).items()
        if inspect.isclass(one) and issubclass(one, Exception) and one is not AdaptBinError
    }
    assert set(classes) == set(BUILTINS)
    for name, builtin in BUILTINS.items():
        assert issubclass(classes[name], AdaptBinError) and issubclass(classes[name], builtin)
        for caught in (AdaptBinError, builtin):
            with pytest.raises(caught, match="what, rule, got"):
                raise classes[name]("what, rule, got")


def test_a_missing_data_set_is_also_a_data_error() -> None:
    assert issubclass(errors.DataNotFoundError, errors.DataError)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("eoll", "; did you mean 'eol'?"),
        ("EOL", "; did you mean 'eol'?"),
        ("breast-cancer", "; did you mean 'breast_cancer'?"),
        ("zzzzzz", ""),
        ("", ""),
    ],
)
def test_the_nearest_known_word(name: str, hint: str) -> None:
    assert nearest(name, ("eol", "hfc", "breast_cancer")) == hint


def test_anything_can_be_asked_about() -> None:
    assert nearest(17, [17, 18]) == "; did you mean '17'?"  # type: ignore[arg-type, list-item]
    assert nearest("x", []) == ""


def test_an_unknown_name_is_answered_with_all_known_ones() -> None:
    assert unknown("panel", "pacience", {"tau", "patience"}) == (
        "unknown panel 'pacience'; did you mean 'patience'? (known: patience, tau)"
    )
    assert unknown("panel", "zzzz", ["b", "a"]) == "unknown panel 'zzzz' (known: a, b)"
