"""Search good settings for one table: a sampler proposes points, and validation judges them.

All fields of a point are searched, or those that you name: weights of the loss, patience, bins, masking, learning rate,
width and depth. The paper's default is tried first; in the end the best three and the default are trained again with
fresh seeds, and the best is held against the default on test. Whatever is finished stays finished: the same command
continues where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.config import Hyperparameters
from adaptbin.errors import ConfigError
from sweeps.service.options import Options
from sweeps.service.parameters import export_options
from sweeps.service.parameters_search import search_options
from sweeps.service.points import Point
from sweeps.service.search_space import Space
from sweeps.service.search_sweep import SearchSweep
from sweeps.service.searches import HalvingSearchStudy, SearchStudy
from sweeps.service.sweep import run_script
from sweeps.service.work import Runner

OPTIONS = (
    *search_options(),
    *export_options(
        "the winner; trial=5 is another of its table", "of the winner the first fresh one, else of --seeds"
    ),
)
"""Options besides those of all scripts."""


def study(options: Options) -> SearchStudy:
    """The search that the options ask for, before any trial."""
    asked = options.search
    assert asked is not None
    if len(options.datasets) != 1:
        raise ConfigError(f"a search is of one data set, got {', '.join(options.datasets)}")
    (name,) = options.datasets
    card = options.cards[name]
    default = Point(hyperparameters=Hyperparameters(), architecture=card.architecture, budget=options.budget)
    is_grid = asked.sampler == "grid"
    space = Space.of(default, asked=asked.searched, fixed=asked.fixed, only_asked=is_grid)
    if is_grid:
        space.grid()  # refuses what has no end
    first = max(options.seeds) + 1
    kind = SearchStudy if asked.halving is None else HalvingSearchStudy
    return kind(
        cards=(card,),
        space=space,
        default=space.default.hyperparameters,
        metric=options.primary[name],
        objectives=asked.objectives,
        halving=asked.halving,
        seeds=options.seeds,
        confirm_seeds=tuple(range(first, first + asked.confirm_seeds)),
        protocol=options.protocol,
        budget=options.budget,
    )


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.  ``runner``: by default Ray."""
    return run_script(
        argv,
        prog="search.py",
        about=__doc__ or "",
        own_options=OPTIONS,
        build=study,
        runner=runner,
        kind=SearchSweep,
    )


if __name__ == "__main__":
    sys.exit(main())
