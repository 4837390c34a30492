"""What a new search begins with: the default, all points of a grid, and trials of searches of other spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sweeps.service.results import ResultsStore
from sweeps.service.search_space import SHAPE, settings_of
from sweeps.service.searches import SearchStudy, Trial

if TYPE_CHECKING:
    from sweeps.service.trials import Trials


def begin(
    study: SearchStudy, trials: Trials, others: Mapping[str, Sequence[Trial]], store: ResultsStore, *, is_grid: bool
) -> int:
    """Put into a new search what it begins with; -> the number of trials taken over from ``others``.

    These are searches by name that differ in their space alone.  Their finished trials that lie in this space, and
    have results in ``store``, are taken over; the default is enqueued, and for a grid all its points are.
    """
    if trials.has_begun:
        return 0
    taken: dict[str, Trial] = {}
    there = {repr(trial.notes.get("settings")) for trial in trials.all}
    for name, of_other in others.items():
        for trial in of_other:
            settings = trial.notes.get("settings")
            if trial.state != "complete" or settings is None or repr(settings) in there:
                continue
            if (chosen := study.space.values_of(settings)) is None:
                continue
            again = replace(trial, chosen=chosen)
            replicas = study.replicas_of(study.point_of(again))
            if len(store.read(replicas).records) == len(replicas):
                there.add(repr(settings))
                taken[f"{name}/{trial.number}"] = again
    for origin, trial in taken.items():  # one by one: each has its origin
        trials.seed([trial], study.space, origin)
    default = study.space.values_of(settings_of(study.default_point))
    if default is not None:
        trials.enqueue(default, once=True)
    # Points of one shape one after the other, so that packs, and brackets of halving, hold many of them.
    for chosen in sorted(study.space.grid(), key=lambda c: [str(c.get(n)) for n in SHAPE]) if is_grid else ():
        trials.enqueue(chosen, once=True)
    trials.begin()
    return len(taken)
