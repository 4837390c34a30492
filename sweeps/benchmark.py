"""Train the paper's benchmark of linear probes: thirteen methods, from value reconstruction to adaptive binning.

Each method is tuned on validation, over p_m .1, .2, .3 where it masks and T (T_init of adaptive bins) 2 or 10 where it
has bins; test scores are shown for what was chosen alone. With --choice-from nothing is tuned: all start from what
masking.py chose for adaptive binning. Several data sets are also ranked together. Whatever is finished stays finished:
the same command continues where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sweeps.service.choice import choices_for
from sweeps.service.methods import BenchmarkStudy
from sweeps.service.options import Options
from sweeps.service.parameters import choice_options, export_options, seeds_vary_options, tuning_options
from sweeps.service.sweep import run_script
from sweeps.service.work import Runner

OPTIONS = (
    *tuning_options(),
    *choice_options("mask-prob and t-init of all methods, which then are not tuned,"),
    *seeds_vary_options(),
    *export_options(),
)
"""Options besides those of all scripts."""


def study(options: Options) -> BenchmarkStudy:
    """The benchmark that the options ask for."""
    cards = tuple(options.cards.values())
    return BenchmarkStudy(
        cards=cards,
        choices=choices_for(options, cards),
        seeds=options.seeds,
        seeds_vary=options.seeds_vary,
        protocol=options.protocol,
        budget=options.budget,
        mask_probs=options.mask_probs,
        t_inits=options.t_inits,
    )


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.  ``runner``: by default Ray."""
    return run_script(argv, prog="benchmark.py", about=__doc__ or "", own_options=OPTIONS, build=study, runner=runner)


if __name__ == "__main__":
    sys.exit(main())
