"""Train adaptive binning with one part taken away or one bound lowered, and test every variant against the full method.

The paper's four (its Table 3): w/o FWA, no feature gets more bins than T_init; w/o FPT, all features are refined by the
clock; w/o DIGS, variance alone decides a split; w/o HORD, bin indices are regressed. Further ones: embeddings alone
decide a split (w/o Gain_var), and lower T_max. Whatever is finished stays finished: the same command continues where it
stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.data.registry import get_card
from sweeps.service.choice import choices_for
from sweeps.service.options import Options
from sweeps.service.parameters import (
    choice_options,
    comparison_options,
    default_point_options,
    export_options,
    seeds_vary_options,
    variant_options,
)
from sweeps.service.sweep import run_script
from sweeps.service.variants import AblationStudy
from sweeps.service.work import Runner

OPTIONS = (
    *seeds_vary_options(),
    *variant_options(),
    *default_point_options(),
    *choice_options(),
    *comparison_options(),
    *export_options(),
)
"""Options besides those of all scripts."""


def study(options: Options) -> AblationStudy:
    """The ablation study that the options ask for."""
    cards = [get_card(name) for name in options.datasets]
    return AblationStudy(
        cards=tuple(cards),
        refine_every=options.refine_every,
        t_maxs=options.t_max,
        default=options.default,
        choices=choices_for(options, cards),
        seeds=options.seeds,
        seeds_vary=options.seeds_vary,
        protocol=options.protocol,
        budget=options.budget,
        test=options.test,
    )


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.  ``runner``: by default Ray."""
    return run_script(argv, prog="ablation.py", about=__doc__ or "", own_options=OPTIONS, build=study, runner=runner)


if __name__ == "__main__":
    sys.exit(main())
