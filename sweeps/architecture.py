"""Choose depth and width of the MLP for each data set by supervised validation, as the paper chose them.

Every architecture of the grid (depth 1 to 5; width 128, 256, 512, 1024) is trained on labels alone, from scratch, with
all seeds. The one with the best mean validation score is chosen and held against the paper's; test scores are shown for
these two alone. Whatever is finished stays finished: the same command continues where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.config import Finetuning
from sweeps.service.architectures import DEPTHS, WIDTHS, ArchitectureStudy
from sweeps.service.options import Options
from sweeps.service.parameters import architecture_options, finetuning_options
from sweeps.service.sweep import run_script
from sweeps.service.work import Runner

OPTIONS = (*architecture_options(), *finetuning_options())
"""Options besides those of all scripts."""


def study(options: Options) -> ArchitectureStudy:
    """The architecture study that the options ask for."""
    return ArchitectureStudy(
        cards=tuple(options.cards.values()),
        depths=options.depths or DEPTHS,
        widths=options.widths or WIDTHS,
        seeds=options.seeds,
        protocol=options.protocol,
        finetuning=options.finetuning or Finetuning(),
    )


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.  ``runner``: by default Ray."""
    return run_script(
        argv, prog="architecture.py", about=__doc__ or "", own_options=OPTIONS, build=study, runner=runner
    )


if __name__ == "__main__":
    sys.exit(main())
