"""The training of one model on a table given to fit: pretraining on all rows, then fine-tuning on labelled ones."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptbin.config import Replica
from adaptbin.data.encode import EncodedRows, EncodedTable
from adaptbin.errors import TrainingError
from adaptbin.training.finetune import FineTuning
from adaptbin.training.graphs import graphs_for
from adaptbin.training.pack import stacks_of
from adaptbin.training.pretrain import Pretraining
from adaptbin.training.readout import loss


def pretrained(replica: Replica, rows: EncodedRows, device: torch.device) -> Pretraining:
    """Pretrain one replica to its last epoch.  Raises TrainingError when its loss is no longer finite."""
    (stack,) = stacks_of([replica], rows, device)
    while not stack.ended:
        stack.run_epoch()
        if stack.diverged_at[0] is not None:
            rate = replica.hyperparameters.learning_rate
            raise TrainingError(
                f"pretraining must keep a finite loss, got one that is not in epoch {stack.epoch} of {stack.epochs}; "
                f"a learning_rate below {rate:g} may help"
            )
    return stack


class LossChosen(FineTuning):
    """Fine-tuning whose best epoch has the least validation loss; without validation rows it is the last one.

    A score of few validation rows has few values and soon its highest one, long before classes are well separated.
    """

    def _score(self) -> Tensor:
        count, targets = len(self.active), self.targets
        if not len(self.table.val):
            return torch.full((count,), self.epoch, dtype=torch.float64, device=self.device)
        outputs = (self._outputs("val") - targets.shift) / targets.scale
        expected = ((self._expected - targets.shift) / targets.scale).to(targets.train.dtype)
        return -loss(outputs, expected.expand(count, -1), targets.task).to(torch.float64)

    @property
    def _highest_score(self) -> float:
        return torch.inf

    def validation_losses(self) -> list[float]:
        """One per epoch that was trained; none without validation rows."""
        told = self.history["val"][0, : self.epoch] * -self.metric.sign
        return told.tolist() if len(self.table.val) else []


def finetuned(replica: Replica, table: EncodedTable, start: Pretraining | None, device: torch.device) -> LossChosen:
    """Train encoder and head of one replica on labels, from ``start`` or from scratch; -> at its best epoch.

    Raises TrainingError when no epoch gave finite numbers.
    """
    tuning = LossChosen(
        [replica],
        table,
        device,
        starts=None if start is None else [(start, 0)],
        graphs=graphs_for(device),
    )
    while not tuning.ended:
        tuning.run_epoch()
    if int(tuning.best_epoch[0]) < 0 or not bool(tuning.best_values.isfinite().all()):
        raise TrainingError(
            "fine-tuning must have an epoch with finite weights and loss, got none of "
            f"{tuning.epochs}; a finetune_learning_rate below {tuning.settings.learning_rate:g} may help"
        )
    tuning.take_best()
    return tuning
