"""A time limit drops whole seeds, the last ones first, and says so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptbin.errors import ResourceError
from sweeps.service.budget import fit_seeds
from sweeps.service.plan import Plan, make_plan
from sweeps.service.points import Study
from tests.service.test_plan import study_of

STUDY = study_of("eol", "hfc", seeds=10)


def plan_of(finished_seeds: Collection[int] = (), study: Study = STUDY) -> Plan:
    return make_plan(study, [r.id for r in study.all_replicas if r.seed in finished_seeds])


def hours(finished: Collection[int] = ()) -> Callable[[Study], float]:
    """An hour for every seed that is not finished."""
    return lambda study: 3600.0 * sum(seed not in finished for seed in study.seeds)


def test_all_fit() -> None:
    assert fit_seeds(plan_of(), 36_000, hours()) == (STUDY, "budget 10 h 00 min: all 10 seeds fit")


def test_seeds_are_dropped_from_the_end() -> None:
    study, told = fit_seeds(plan_of(), 6.5 * 3600, hours())
    assert study.seeds == (0, 1, 2, 3, 4, 5)
    assert {r.seed for r in study.all_replicas} == set(study.seeds)
    assert study.datasets == ("eol", "hfc") and study.unique_points == STUDY.unique_points
    assert told == (
        "budget 6 h 30 min: 6 of 10 seeds fit; seeds 6 to 9 are dropped; without --budget 10 h 00 min"
    )  # six can be significant, so there is no warning
    nine, told = fit_seeds(plan_of(), 9 * 3600, hours())
    assert (len(nine.seeds), "; seed 9 is dropped;" in told) == (9, True)


def test_too_few_for_a_significant_difference_is_told() -> None:
    warned = fit_seeds(plan_of(), 5 * 3600, hours())[1].splitlines()
    assert warned[1:] == [
        "warning: no difference can be significant: with 5 seeds the test gives p = 0.0625 at the least"
    ]
    assert len(fit_seeds(plan_of(), 5 * 3600, hours(), test="t")[1].splitlines()) == 1
    assert fit_seeds(plan_of(), 3600, hours(), test="t")[1].endswith("no difference can be tested with 1 seed")


def test_finished_seeds_are_free() -> None:
    finished = {0, 1, 8}
    study, told = fit_seeds(plan_of(finished), 2 * 3600, hours(finished))
    assert study.seeds == (0, 1, 2, 3, 8)
    assert "5 of 10 seeds fit; seeds 4, 5, 6, 7, 9 are dropped" in told
    # Nothing more fits: what is finished is the study.
    assert fit_seeds(plan_of(finished), 60, hours(finished))[0].seeds == (0, 1, 8)


def test_less_than_one_seed_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"one seed of every point, about 1 h 00 min, got 30 min 00 s \(all 10"):
        fit_seeds(plan_of(), 1800, hours())
    one = study_of(seeds=1)
    with pytest.raises(ResourceError, match="budget must be enough for one seed"):
        fit_seeds(plan_of(study=one), 1800, hours())


@given(st.sets(st.integers(0, 9)), st.integers(0, 11))
def test_as_many_as_fit_and_no_more(finished: set[int], fitting: int) -> None:
    plan, seconds_of = plan_of(finished), hours(finished)
    if fitting == 0 and not finished:
        with pytest.raises(ResourceError):
            fit_seeds(plan, 1800, seconds_of)
        return
    study, _ = fit_seeds(plan, 3600 * fitting + 1800, seconds_of)
    waiting = [seed for seed in STUDY.seeds if seed not in finished]
    assert study.seeds == tuple(sorted(finished | set(waiting[:fitting])))


def test_the_same_study_with_fewer_seeds_has_the_same_replicas() -> None:
    fewer = STUDY.only_seeds([1, 4])
    assert fewer.replicas == study_with([1, 4]).replicas
    assert fewer == study_with([1, 4])


def study_with(seeds: list[int]) -> Study:
    return replace(STUDY, seeds=tuple(seeds))
