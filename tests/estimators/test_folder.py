"""What is saved comes back the same, from a folder with no code in it; what is not whole or not ours is refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import adaptbin
from adaptbin import (
    AdaptiveBinningClassifier,
    AdaptiveBinningEncoder,
    AdaptiveBinningRegressor,
    ConfigError,
    DataError,
    DataNotFoundError,
)
from adaptbin.config import METHOD_VERSION
from adaptbin.estimators.folder import MANIFEST, _digest
from tests.estimators.tables import TINY, TINY_TUNING, clinic, outcome

TABLE = clinic()


@pytest.fixture(scope="module")
def encoder() -> AdaptiveBinningEncoder:
    return AdaptiveBinningEncoder(**TINY).fit(TABLE)


@pytest.mark.parametrize("name", ["mlp", "resnet", "tabnet", "ft_transformer", "t2g_former"])
def test_every_encoder_comes_back(name: Any, tmp_path: Path) -> None:
    small: dict[str, Any] = {} if name in ("mlp", "tabnet") else {"encoder_settings": {"n_blocks": 1}}
    fitted = AdaptiveBinningEncoder(**(TINY | {"epochs": 1}), encoder=name, **small).fit(TABLE)
    fitted.save(tmp_path / "a" / "model")
    loaded = adaptbin.load(tmp_path / "a" / "model")
    assert type(loaded) is AdaptiveBinningEncoder and loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.transform(TABLE), fitted.transform(TABLE))
    assert (loaded.bin_edges_, loaded.loss_curve_) == (fitted.bin_edges_, fitted.loss_curve_)
    assert list(loaded.get_feature_names_out()) == list(fitted.get_feature_names_out())
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.transform(TABLE[TABLE.columns[::-1]])


@pytest.mark.parametrize("labels", [outcome(TABLE), np.arange(120) % 3, (np.arange(120) % 2).astype(bool)])
def test_classifiers_come_back(labels: np.ndarray, tmp_path: Path) -> None:
    fitted = AdaptiveBinningClassifier(**TINY_TUNING).fit(TABLE, labels)
    fitted.save(tmp_path)
    loaded = AdaptiveBinningClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(TABLE), fitted.predict_proba(TABLE))
    np.testing.assert_array_equal(loaded.predict(TABLE), fitted.predict(TABLE))
    assert loaded.classes_.dtype == fitted.classes_.dtype
    assert (loaded.best_epoch_, loaded.validation_curve_) == (fitted.best_epoch_, fitted.validation_curve_)


def test_regressors_come_back(tmp_path: Path) -> None:
    settings = TINY_TUNING | {"categorical_features": np.array([2, 4]), "encoder": "tabnet", "pretrain": False}
    fitted = AdaptiveBinningRegressor(**settings).fit(TABLE, TABLE["age"])
    fitted.save(tmp_path)
    loaded = AdaptiveBinningRegressor.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(TABLE), fitted.predict(TABLE))
    # The settings came back, too.
    np.testing.assert_array_equal(loaded.fit(TABLE, TABLE["age"]).predict(TABLE), fitted.predict(TABLE))


def test_what_lies_in_the_folder(encoder: AdaptiveBinningEncoder, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    encoder.save(tmp_path)
    first = {path.name for path in tmp_path.iterdir()}
    assert len(first) == 3 and {"notes.txt", MANIFEST} < first
    AdaptiveBinningEncoder(**TINY, random_state=1).fit(TABLE).save(str(tmp_path))
    second = {path.name for path in tmp_path.iterdir()}
    assert len(second) == 3 and len(first & second) == 2, "the old tensors are gone"
    assert adaptbin.load(tmp_path).random_state == 1


def test_a_crash_between_the_files_leaves_the_old_model(
    encoder: AdaptiveBinningEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder.save(tmp_path)
    other = AdaptiveBinningEncoder(**TINY, random_state=1).fit(TABLE)
    replace = Path.replace

    def fail_at_the_manifest(self: Path, target: Path) -> Path:
        if target.name == MANIFEST:
            raise OSError("the disk is full")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_at_the_manifest)
    with pytest.raises(OSError, match="the disk is full"):
        other.save(tmp_path)
    np.testing.assert_array_equal(adaptbin.load(tmp_path).transform(TABLE), encoder.transform(TABLE))
    assert not list(tmp_path.glob("*.part"))


def edited(change: Callable[[dict[str, Any]], Any], *, forged: bool = False) -> Callable[[Path], None]:
    """A change of the JSON, with its digest made anew where it is ``forged``."""

    def edit(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text())
        change(manifest)
        if forged:
            del manifest["digest"]
            manifest["digest"] = _digest(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return edit


def tensors(folder: Path) -> Path:
    (path,) = folder.glob("tensors-*.safetensors")
    return path


def flip_a_byte(folder: Path) -> None:
    content = bytearray(tensors(folder).read_bytes())
    content[-1] ^= 1
    tensors(folder).write_bytes(content)


@pytest.mark.parametrize(
    "spoil, error, message",
    [
        (lambda f: (f / MANIFEST).unlink(), DataNotFoundError, "got no estimator.json in it"),
        (lambda f: (f / MANIFEST).write_text("{"), DataError, "must be JSON"),
        (lambda f: (f / MANIFEST).write_bytes(b"\xff\xfe"), DataError, "must be JSON"),
        (lambda f: (f / MANIFEST).write_text("[1]"), DataError, "of the kind 'adaptbin estimator', got 'list'"),
        (lambda f: (f / MANIFEST).write_text('{"kind": "study"}'), DataError, "got 'study'"),
        (edited(lambda m: m.update(schema=4)), DataError, "schema must be at most 3, got 4.*which is newer"),
        (edited(lambda m: m.update(method_version=99)), DataError, "method_version must be at most"),
        (edited(lambda m: m["columns"]["mean"].reverse()), DataError, "must be as it was saved"),
        (flip_a_byte, DataError, "must be as it was saved"),
        (lambda f: tensors(f).write_bytes(tensors(f).read_bytes()[:-9]), DataError, "must be as it was saved"),
        (lambda f: tensors(f).unlink(), DataError, "got no such file beside it"),
        (edited(lambda m: m.update(estimator="Forest"), forged=True), DataError, "must hold one of .*, got Forest"),
        (edited(lambda m: m["architecture"].update(width=8), forged=True), DataError, "encoder.0.bias should have"),
        (edited(lambda m: m["architecture"].update(encoder="gru"), forged=True), ConfigError, "encoder must be one of"),
        (
            edited(lambda m: m["architecture"].update(encoder="tabnet"), forged=True),
            DataError,
            "the tensors of this tabnet must be those of its settings",
        ),
        (edited(lambda m: m["columns"]["kinds"].__setitem__(5, "numerical"), forged=True), DataError, "should have"),
    ],
)
def test_folders_that_are_refused(
    spoil: Callable[[Path], Any],
    error: type[Exception],
    message: str,
    encoder: AdaptiveBinningEncoder,
    tmp_path: Path,
) -> None:
    encoder.save(tmp_path)
    spoil(tmp_path)
    with pytest.raises(error, match=message):
        adaptbin.load(tmp_path)


def test_a_model_of_an_older_method_answers_as_it_did(encoder: AdaptiveBinningEncoder, tmp_path: Path) -> None:
    encoder.save(tmp_path)
    edited(lambda m: m.update(method_version=METHOD_VERSION - 1), forged=True)(tmp_path)
    np.testing.assert_array_equal(adaptbin.load(tmp_path).transform(TABLE), encoder.transform(TABLE))


def test_a_t2g_former_from_when_its_usual_hidden_units_were_more_answers_as_it_did(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_blocks": 1, "ffn_d_hidden_multiplier": 4 / 3}
    fitted = AdaptiveBinningEncoder(**(TINY | {"epochs": 1}), encoder="t2g_former", encoder_settings=settings).fit(
        TABLE
    )
    assert fitted.model_.tensors["encoder.0.out.weight"].shape == (256, 192)
    fitted.save(tmp_path)

    def as_then(manifest: dict[str, Any]) -> None:
        manifest["schema"] = 2
        for told in (manifest["settings"], manifest["architecture"]):
            del told["encoder_settings"]["ffn_d_hidden_multiplier"]

    edited(as_then, forged=True)(tmp_path)
    loaded = adaptbin.load(tmp_path)
    np.testing.assert_array_equal(loaded.transform(TABLE), fitted.transform(TABLE))
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(adaptbin.load(tmp_path / "again").transform(TABLE), fitted.transform(TABLE))


def test_other_folders_and_estimators(encoder: AdaptiveBinningEncoder, tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="must be a folder that an estimator was saved to"):
        adaptbin.load(tmp_path / "nowhere")
    encoder.save(tmp_path)
    with pytest.raises(DataError, match="AdaptiveBinningClassifier loads must hold one, got AdaptiveBinningEncoder"):
        AdaptiveBinningClassifier.load(tmp_path)
    with pytest.raises(NotFittedError):
        AdaptiveBinningEncoder().save(tmp_path)
    failed = pickle.loads(pickle.dumps(encoder))
    with pytest.raises(DataError, match="at least one column must take two values"):
        failed.fit(TABLE[["site"]])
    with pytest.raises(NotFittedError):
        failed.transform(TABLE[["site"]])
    with pytest.raises(ConfigError, match="device must be text"):
        unsaved = pickle.loads(pickle.dumps(encoder)).set_params(device=object())
        unsaved.save(tmp_path)


def test_importing_the_package_stays_quick() -> None:
    """The estimators bring torch and scikit-learn, which take seconds, when they are used and not before."""
    import subprocess
    import sys

    code = (
        "import sys, adaptbin; assert not {'torch', 'sklearn', 'pandas', 'safetensors'} & set(sys.modules); "
        "adaptbin.AdaptiveBinningEncoder; assert 'torch' in sys.modules; "
        "assert not {'matplotlib', 'ray'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'loda'"):
        adaptbin.loda  # noqa: B018
