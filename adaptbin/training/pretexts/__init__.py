"""What models are pretrained on; each pretext is one module here."""

from __future__ import annotations

from adaptbin.config import PretextName
from adaptbin.training.pretexts.adaptive_bin_recon import AdaptiveBinRecon
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from adaptbin.training.pretexts.baselines import Reconstruction
from adaptbin.training.pretrain import Pretraining

PRETEXTS: dict[PretextName, type[Pretraining]] = {
    "adaptive_binning": AdaptiveBinning,
    "adaptive_bin_recon": AdaptiveBinRecon,
    "value_recon": Reconstruction,
    "mask_xent": Reconstruction,
    "mask_xent_value_recon": Reconstruction,
    "bin_recon": Reconstruction,
}
"""Name, as in :class:`adaptbin.config.Hyperparameters` -> how it trains."""
