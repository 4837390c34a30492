"""A time limit for a whole sweep: seeds are left out, from the last one on, until the rest fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from adaptbin.errors import ResourceError
from sweeps.service.notes import named_seeds
from sweeps.service.plan import Plan
from sweeps.service.points import AskedTest, Study
from sweeps.service.progress import duration

LEVEL = 0.05


def fit_seeds(
    plan: Plan, seconds: float, seconds_of: Callable[[Study], float], *, test: AskedTest | None = "wilcoxon"
) -> tuple[Study, str]:
    """The study of ``plan`` with as many of its seeds as fit in ``seconds``, and a line or two that say so.

    Seeds go for every point and data set alike, the last one first; those with nothing left to train cost nothing and
    stay.  ``seconds_of`` estimates a study.  ``test``: the one that its points are compared by; None where none is.

    Raises ResourceError when not even the fewest seeds that the study needs fit.
    """
    study = plan.study
    waiting = {replica.seed for replica in plan.to_do}
    open_seeds = [seed for seed in study.seeds if seed in waiting]
    whole = seconds_of(study)
    if whole <= seconds:
        return study, f"budget {duration(seconds)}: all {len(study.seeds)} seeds fit"

    def keeping(count: int) -> Study:
        kept = waiting.difference(open_seeds[count:])
        return study.only_seeds([seed for seed in study.seeds if seed in kept or seed not in waiting])

    fewest = max(0, study.fewest_seeds - (len(study.seeds) - len(open_seeds)))
    low, high = fewest, len(open_seeds)  # low fits or is the least there can be; high does not fit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seconds_of(keeping(middle)) <= seconds else (low, middle)
    if low == fewest > 0 and (least := seconds_of(keeping(fewest))) > seconds:
        few = "one seed" if fewest == 1 else f"{fewest} seeds"
        raise ResourceError(
            f"budget must be enough for {few} of every point, about {duration(least)}, got {duration(seconds)} "
            f"(all {len(study.seeds)} seeds: {duration(whole)})"
        )
    kept, dropped = keeping(low), open_seeds[low:]
    told = (
        f"budget {duration(seconds)}: {len(kept.seeds)} of {len(study.seeds)} seeds fit; {named_seeds(dropped)} "
        f"{'is' if len(dropped) == 1 else 'are'} dropped; without --budget {duration(whole)}"
    )
    return kept, "\n".join([told, *_warning(len(kept.seeds), test)])


def _warning(seeds: int, test: AskedTest | None) -> Iterable[str]:
    if test is None:
        return
    least = 2.0 ** (1 - seeds)  # of the signed-rank test, see sweeps.service.stats
    if test == "wilcoxon" and least > LEVEL:
        count = "1 seed" if seeds == 1 else f"{seeds} seeds"
        yield f"warning: no difference can be significant: with {count} the test gives p = {least:.3g} at the least"
    elif seeds < 2:
        yield "warning: no difference can be tested with 1 seed"
