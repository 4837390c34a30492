"""Plans a study for the machines at hand: asks for their shape, for what is finished, failed, begun, and for time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from adaptbin.errors import DataNotFoundError
from sweeps.service.budget import fit_seeds
from sweeps.service.checkpoints import CheckpointPlace
from sweeps.service.estimate import Speed, describe, estimate, longest_first, speeds, work_of
from sweeps.service.failures import FailureLog
from sweeps.service.kinds import Work
from sweeps.service.memory import Sizes, needs
from sweeps.service.nodes import Node
from sweeps.service.options import Options
from sweeps.service.plan import Pack, Plan, make_plan
from sweeps.service.points import Study
from sweeps.service.results import Reading, ResultsStore
from sweeps.service.work import Runner

if TYPE_CHECKING:
    from sweeps.service.estimate import Estimate
    from sweeps.service.timing import Timing

TIMING_SECONDS = 2.0
"""About as long steps are timed in all, shared by the kinds of work."""


class Planner:
    """Makes plans of a study, or of parts of it; machines and speeds are asked for once."""

    def __init__(
        self,
        options: Options,
        study: Study,
        runner: Runner,
        store: ResultsStore,
        failures: FailureLog,
        checkpoints: Callable[[], CheckpointPlace],
    ) -> None:
        self._options = options
        self._study = study
        self._runner = runner
        self._store = store
        self._failures = failures
        self._checkpoints = checkpoints
        self._speeds: dict[Work, Speed] = {}
        self.told_of_budget = ""
        """What was dropped to keep to the budget; empty without one."""

    def plan(self, study: Study, reading: Reading, leave: Collection[str] = (), *, whole_points: bool = False) -> Plan:
        """What is left of ``study``, in packs; without the replicas of the ids in ``leave``.

        whole_points: No point's seeds are parted.
        """
        options = self._options
        missing = [replica for replica in study.all_replicas if replica.id not in reading.records]
        # This machine costs nothing to ask; a cluster is called only when there is something to train.
        nodes = self._nodes if missing or options.address is None else []
        return make_plan(
            study,
            {*reading.records, *leave},
            failed=self._failures.read(missing),
            retry_failed=options.retry_failed,
            resources=options.resources,
            workers=max(1, sum(map(options.resources.fit, nodes))),
            pack_size=options.pack,
            begun=self._checkpoints().begun() if missing else None,
            nodes=nodes,
            needs=needs(study, self.sizes, self._samples, options.device),
            whole_points=whole_points,
        )

    def within_budget(self, plan: Plan, reading: Reading) -> Plan:
        """The plan, or one of as many seeds as fit in the time asked for.  Raises ResourceError when none does."""
        if self._options.time_limit is None:
            return plan
        self._estimate(plan)  # steps are timed on the whole study's packs
        study, self.told_of_budget = fit_seeds(
            plan,
            self._options.time_limit,
            lambda part: self._estimate(self.plan(part, reading)).seconds,
            test=self._study.test,
        )
        return plan if study is plan.study else self.plan(study, reading)

    def describe(self, plan: Plan) -> str:
        """The plan in words, with memory and time."""
        return "\n".join(filter(None, [describe(plan, self._estimate(plan)), self.told_of_budget]))

    def in_order(self, plan: Plan) -> tuple[Pack, ...]:
        """The packs of ``plan`` in the order to train them in."""
        self._estimate(plan)
        return longest_first(plan.packs, self._speeds)

    def _estimate(self, plan: Plan) -> Estimate:
        if not {work_of(pack) for pack in plan.packs} <= self._speeds.keys():
            device = self._options.device
            seconds = max(0.2, TIMING_SECONDS / len({work_of(pack) for pack in plan.packs}))
            timed = partial(self._timed, seconds=seconds)
            self._speeds = speeds(plan, self.sizes, self._samples, device=device, time_it=timed)
        return estimate(plan, self._speeds)

    def _timed(self, pack: Pack, *, seconds: float) -> Timing | None:
        """A few timed steps of a pack where it would be trained, if its data file is at hand."""
        from adaptbin.data.encode import encode
        from adaptbin.data.sources import load_table

        try:
            table = self._options.tables.get(pack.dataset) or load_table(
                pack.dataset, data_dir=self._options.data_dir, download=False
            )
        except DataNotFoundError:
            return None
        encoded = encode(table, split_seed=pack.split_seed, unseen_category=self._study.protocol.unseen_category)
        return self._runner.timed(pack, encoded, self._options.resources, device=self._options.device, seconds=seconds)

    @cached_property
    def _nodes(self) -> list[Node]:
        return self._runner.nodes(self._options.resources)

    @cached_property
    def sizes(self) -> dict[str, Sizes]:
        """Data set -> what its shapes are."""
        from adaptbin.data.splits import split_rows, unlabelled_rows

        found = {}
        for card in (self._options.cards[name] for name in self._study.datasets):
            # 64 % of the rows are train rows under every split (method: "Splits").
            train = round(0.64 * card.rows)
            if (table := self._options.tables.get(card.key)) is not None:  # not all of its rows need have a label
                split = split_rows(table)
                train = split.train.size + unlabelled_rows(table, split).size
            # A column that may lack numbers may have an indicator of them.
            features = len(card.columns) + sum(column.missing for column in card.columns)
            found[card.key] = Sizes(train, features, card.rows)
        return found

    @cached_property
    def _samples(self) -> list[dict[str, Any]]:
        """Some earlier records, of any study: they tell of time and memory."""
        prints = {card.key: card.fingerprint for card in self._study.cards}  # own tables may share a name
        sampled = (record for name in prints for record in self._store.sample(name))
        return [
            record for record in sampled if record["identity"]["fingerprint"] == prints[record["identity"]["dataset"]]
        ]
