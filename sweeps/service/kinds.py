"""Kinds of work, and what replicas of one kind share: what decides how long a replica takes, and how much memory."""

from __future__ import annotations

from typing import NamedTuple

from adaptbin.config import Architecture, Budget, Finetuning, PretextName, Replica, SeedsVary
from sweeps.service.points import Point, point_of


def pretraining_of(replica: Replica) -> tuple[Point, int]:
    """What replicas of one pack that are one pretrained model have in common; see :func:`point_of`.

    Without a pretraining there is nothing to share.
    """
    alone = replica.hyperparameters.pretext == "none"
    return point_of(replica), replica.seed if alone else replica.seeds.pretrain


class Work(NamedTuple):
    """What decides time and memory of a replica, besides its data set's size and the machine."""

    dataset: str
    architecture: Architecture
    pretext: PretextName
    budget: Budget
    finetuning: Finetuning | None
    seeds_vary: SeedsVary
    """Where that is the probes, replicas share a pretraining, and so its time."""

    @classmethod
    def of(cls, dataset: str, point: Point, seeds_vary: SeedsVary) -> Work:
        """That of a point's replicas."""
        return cls(
            dataset, point.architecture, point.hyperparameters.pretext, point.budget, point.finetuning, seeds_vary
        )

    @property
    def name(self) -> str:
        """``eol``; of what is not the paper's perceptron or is trained on labels ``eol (resnet, fine-tuned)``."""
        told: list[str] = [self.architecture.encoder] if self.architecture.encoder != "mlp" else []
        told += ["fine-tuned"] if self.finetuning is not None else []
        return f"{self.dataset} ({', '.join(told)})" if told else self.dataset


def work_of(replica: Replica) -> Work:
    """The work that a replica is."""
    return Work.of(replica.dataset, point_of(replica), replica.seeds_vary)
