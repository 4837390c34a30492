"""Train one point with seeds that change the probes alone, the pretraining too, and the split too: where scores vary.

The variance of a score is taken apart into what comes of the probes, of the pretraining, and of the split. Each part is
shown with its 95 % interval. The point is the default; --choice-from takes over what masking.py chose. Whatever is
finished stays finished: the same command continues where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.errors import ConfigError
from sweeps.service.choice import choices_for
from sweeps.service.options import Options
from sweeps.service.parameters import choice_options, default_point_options
from sweeps.service.sweep import run_script
from sweeps.service.variance import VarianceStudy
from sweeps.service.work import Runner

OPTIONS = (*default_point_options(), *choice_options())
"""Options besides those of all scripts."""


def study(options: Options) -> VarianceStudy:
    """The variance study that the options ask for.  Raises ConfigError for a table with a split of its own."""
    cards = list(options.cards.values())
    for name, table in options.tables.items():
        if table.parts is not None:
            raise ConfigError(
                f"{name} has a split of its own, so nothing can be said of how scores vary with the split"
            )
    return VarianceStudy(
        cards=tuple(cards),
        default=options.default,
        choices=choices_for(options, cards),
        seeds=options.seeds,
        protocol=options.protocol,
        budget=options.budget,
    )


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.  ``runner``: by default Ray."""
    return run_script(argv, prog="variance.py", about=__doc__ or "", own_options=OPTIONS, build=study, runner=runner)


if __name__ == "__main__":
    sys.exit(main())
