"""Train the paper's sensitivity panels, test every point against the default, and draw the figure.

Each panel moves one hyperparameter of adaptive binning (w_SORD, w_mse, w_var, patience, tau) and leaves the others at
their default. Whatever is finished stays finished: the same command continues where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.data.registry import get_card
from sweeps.service.choice import choices_for
from sweeps.service.options import Options
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.parameters import (
    choice_options,
    comparison_options,
    default_point_options,
    export_options,
    panel_options,
    seeds_vary_options,
)
from sweeps.service.sweep import run_script
from sweeps.service.work import Runner

OPTIONS = (
    *seeds_vary_options(),
    *panel_options(),
    *default_point_options(),
    *choice_options(),
    *comparison_options(),
    *export_options(),
)
"""Options besides those of all scripts."""


def study(options: Options) -> SensitivityStudy:
    """The sensitivity study that the options ask for."""
    cards = [get_card(name) for name in options.datasets]
    asked = SensitivityStudy(
        cards=tuple(cards),
        panels=get_panels(options.panels),
        default=options.default,
        choices=choices_for(options, cards),
        seeds=options.seeds,
        seeds_vary=options.seeds_vary,
        protocol=options.protocol,
        budget=options.budget,
        test=options.test,
    )
    for panel, value in options.values:
        asked = asked.with_value(panel, value)
    return asked


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.  ``runner``: by default Ray."""
    return run_script(argv, prog="sensitivity.py", about=__doc__ or "", own_options=OPTIONS, build=study, runner=runner)


if __name__ == "__main__":
    sys.exit(main())
