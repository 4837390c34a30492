"""Train the paper's grid of masking for adaptive binning, and choose one point of it on validation.

The grid: masking none, constant or random; p_m .1, .2, .3; T_init 2 or 10. The point with the best mean validation
score is chosen, and test scores are shown for it alone. Other scripts take the choice over with --choice-from. Whatever
is finished stays finished: the same command continues where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sweeps.service.grid import MaskingStudy
from sweeps.service.options import Options
from sweeps.service.parameters import export_options, seeds_vary_options, show_test_options, tuning_options
from sweeps.service.sweep import run_script
from sweeps.service.work import Runner

OPTIONS = (*tuning_options(), *seeds_vary_options(), *show_test_options(), *export_options())
"""Options besides those of all scripts."""


def study(options: Options) -> MaskingStudy:
    """The masking study that the options ask for."""
    return MaskingStudy(
        cards=tuple(options.cards.values()),
        seeds=options.seeds,
        seeds_vary=options.seeds_vary,
        protocol=options.protocol,
        budget=options.budget,
        mask_probs=options.mask_probs,
        t_inits=options.t_inits,
    )


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.  ``runner``: by default Ray."""
    return run_script(argv, prog="masking.py", about=__doc__ or "", own_options=OPTIONS, build=study, runner=runner)


if __name__ == "__main__":
    sys.exit(main())
