from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adaptbin.config import Hyperparameters
from sweeps.service import projection
from tests.service.records import DEFAULT, PATIENCE, TAU, make_record


def test_points_are_named_by_what_they_change():
    default = DEFAULT.to_dict()
    described = [projection.describe_point(point.to_dict(), default) for point in (DEFAULT, TAU, PATIENCE)]
    assert [what.name for what in described] == ["default", "tau = 0.001", "patience = 20"]
    assert [what.tags["adaptbin.panel"] for what in described] == ["all", "tau", "patience"]
    assert [what.tags["adaptbin.value"] for what in described] == ["default", "0.001", "20"]
    assert len({what.key for what in described}) == 3
    both = projection.describe_point(TAU.to_dict() | {"patience": 20}, default)
    assert both.name == "patience = 20, tau = 0.001"
    assert both.tags == {"adaptbin.panel": "patience,tau", "adaptbin.value": "20,0.001"}


def test_a_point_may_change_a_setting_back_that_is_told_only_where_it_differs():
    ablated = Hyperparameters(split_score="variance", refine_every=6).to_dict()
    named = {
        projection.describe_point(point.to_dict(), ablated).name
        for point in (
            Hyperparameters(),
            Hyperparameters(split_score="variance"),
            Hyperparameters(split_score="variance", refine_every=6),
        )
    }
    assert named == {"refine_every = 0, split_score = product", "refine_every = 0", "default"}


def test_the_order_of_keys_is_no_part_of_a_points_key():
    shuffled = dict(reversed(TAU.to_dict().items()))
    default = DEFAULT.to_dict()
    assert projection.describe_point(shuffled, default).key == projection.describe_point(TAU.to_dict(), default).key


def test_a_study_is_the_same_for_every_seed_and_point_of_it():
    default = DEFAULT.to_dict()
    one, other = (make_record(point, seed)["identity"] for point, seed in ((DEFAULT, 0), (TAU, 7)))
    assert projection.study_settings(one, default) == projection.study_settings(other, default)
    longer = make_record(DEFAULT, 0, epochs=50)["identity"]
    assert projection.study_settings(longer, default) != projection.study_settings(one, default)


def test_parameters_hold_the_whole_identity_and_fit_one_batch():
    params = projection.flat_params(make_record(TAU, 3)["identity"])
    assert params["tau"] == "0.001"
    assert params["seed"] == "3"
    assert params["epochs"] == "12"
    assert params["width"] == "32"
    assert params["protocol.label_order"] == "clinical"
    assert len(params) <= 100


def test_scalars_leave_out_what_is_missing_or_not_finite():
    record = make_record(DEFAULT, 0)
    record["scores"]["test"]["accuracy"] = math.nan
    record["bins"]["splits"] = None
    assert projection.replica_scalars(record) == {
        "val_qwk": 0.9,
        "test_qwk": 0.89,
        "triggers": 7.0,
        "seconds": 12.5,
    }
    record["scores"] = {}
    assert set(projection.replica_scalars(record)) == {"triggers", "seconds"}


@given(epochs=st.integers(0, 450), broken=st.integers(0, 500))
def test_curves_are_thinned_to_the_limit_without_losing_a_split(epochs, broken):
    curves = {
        "epoch": list(range(1, epochs + 1)),
        "loss": [math.inf if i == broken else float(i) for i in range(epochs)],
        "splits": [i % 3 for i in range(epochs)],
    }
    points = projection.replica_curves({"curves": curves})
    loss = {step: value for name, step, value in points if name == "loss"}
    splits = {step: value for name, step, value in points if name == "splits"}
    assert len(splits) == min(epochs, projection.CURVE_POINTS)
    assert len(splits) - len(loss) in (0, 1)
    assert all(value == step - 1 for step, value in loss.items())
    assert sum(splits.values()) == sum(curves["splits"])
    if epochs:
        assert max(splits) == epochs


@given(st.lists(st.integers(0, 2), min_size=1, max_size=projection.CURVE_POINTS))
def test_lines_between_the_points_kept_draw_the_same_curve(values):
    epochs = list(range(5, 5 + len(values)))
    curves = {"epoch": epochs, "max_bins": values, "splits": values}
    for name in ("max_bins", "splits"):
        kept = {step: value for found, step, value in projection.replica_curves({"curves": curves}) if found == name}
        np.testing.assert_array_equal(np.interp(epochs, list(kept), list(kept.values())), values)
    assert sum(kept.values()) == sum(values)


def test_a_level_stretch_costs_two_points():
    curves = {"epoch": list(range(100)), "mean_bins": [2.0] * 40 + [3.0] * 60, "splits": [0.0] * 100}
    assert projection.replica_curves({"curves": curves}) == [
        ("mean_bins", 1, 2.0),
        ("mean_bins", 39, 2.0),
        ("mean_bins", 41, 3.0),
        ("mean_bins", 99, 3.0),
        ("splits", 1, 0.0),
        ("splits", 99, 0.0),
    ]


def test_curves_of_fine_tuning_follow_those_of_pretraining():
    record = make_record(DEFAULT, 0)
    record["finetuning"] = {
        "epochs": 3,
        "ended": "broke",
        "metric": "qwk",
        "curves": {"loss": [1.0, 0.5, None], "val": [0.2, 0.4, None]},
    }
    curves = projection.replica_curves(record)
    loss, score = (("finetune_loss", 1, 1.0), ("finetune_loss", 2, 0.5)), ("finetune_val_qwk", 2, 0.4)
    found = [point for point in curves if point[0].startswith("finetune")]
    assert found == [*loss, ("finetune_val_qwk", 1, 0.2), score]
    assert {name for name, _, _ in curves} > {"loss", "mean_bins"}
    assert projection.replica_tags(record)["adaptbin.finetuning_ended"] == "broke"
    assert "adaptbin.finetuning_ended" not in projection.replica_tags(make_record(DEFAULT, 0))


def test_a_replica_starts_as_long_before_its_end_as_it_took():
    start, end = projection.interval(make_record(DEFAULT, 5))
    assert end == 1000 * datetime(2026, 3, 1, 10, 0, 5, tzinfo=UTC).timestamp()
    assert end - start == 12_500


def test_the_digest_changes_with_any_number():
    record = make_record(DEFAULT, 0)
    before = projection.digest(record)
    record["curves"]["loss"][3] += 1e-9
    assert projection.digest(record) != before
