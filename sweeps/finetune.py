"""Train whole models on labels, from scratch and after pretraining, and test what pretraining gains.

Supervised (from scratch), MR, BR and Ours, each with an MLP, a ResNet, a TabNet, an FT-Transformer and a T2G-Former, as
in the paper's Table 4. Every method is tested against supervised and against BR with the same encoder and seeds.
Masking, p_m and T of the pretexts come from benchmark.py with --choice-from. Whatever is finished stays finished: the
same command continues where it stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.config import Finetuning
from adaptbin.data.registry import get_card
from sweeps.service.methods_finetune import PRETRAINED, FinetuneStudy
from sweeps.service.options import Options
from sweeps.service.parameters import (
    comparison_options,
    encoder_options,
    export_options,
    finetuning_options,
    pretext_choice_options,
    seeds_vary_options,
)
from sweeps.service.pretext_choices import pretext_choices_for
from sweeps.service.sweep import run_script
from sweeps.service.work import Runner

OPTIONS = (
    *encoder_options(),
    *finetuning_options(),
    *seeds_vary_options(),
    *pretext_choice_options(),
    *comparison_options(),
    *export_options(),
)
"""Options besides those of all scripts."""


def study(options: Options) -> FinetuneStudy:
    """The fine-tuning study that the options ask for."""
    cards = [get_card(name) for name in options.datasets]
    return FinetuneStudy(
        cards=tuple(cards),
        encoders=options.encoders,
        pretext_choices=pretext_choices_for(options, cards, PRETRAINED),
        seeds=options.seeds,
        seeds_vary=options.seeds_vary,
        protocol=options.protocol,
        budget=options.budget,
        finetuning=options.finetuning or Finetuning(),
        test=options.test,
    )


def main(argv: Sequence[str] | None = None, *, runner: Runner | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.  ``runner``: by default Ray."""
    return run_script(argv, prog="finetune.py", about=__doc__ or "", own_options=OPTIONS, build=study, runner=runner)


if __name__ == "__main__":
    sys.exit(main())
