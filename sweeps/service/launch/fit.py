"""A queue of packs worked off by Ray Tune: a trial is a pack, workers are kept, and the queue may change meanwhile."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sweeps.service.calls import CallThread
from sweeps.service.dispatch import PackQueue
from sweeps.service.interrupt import Interruption
from sweeps.service.kernel_kills import kernel_kills
from sweeps.service.launch.trial import to_config, trial
from sweeps.service.plan import Resources
from sweeps.service.work import Failure, Steering, first_line

STEERING_SECONDS = 1.0
"""Time between two looks at what was asked of a run under way."""

MAX_LOSSES = 3
"""How often Ray may lose something of a run, but for what its memory monitor does, before the run ends."""

NODE_SECONDS = 5.0
"""Longest wait for a machine to say how many processes its kernel has killed."""


class Fit:
    """One run of Tune over a queue.  Whoever makes it calls :meth:`run` until the queue is over."""

    def __init__(
        self,
        queue: PackQueue,
        calls: CallThread,
        steering: Steering | None,
        interruption: Interruption,
    ) -> None:
        self.queue = queue
        self.calls = calls
        self._steering = steering
        self._interruption = interruption
        self._steered = time.monotonic()
        self._losses = 0

    def run(self, shared: Mapping[str, Any], resources: Resources, folder: Path) -> None:
        """Train until nothing waits.  Raises Interrupted after a signal, and whatever the listener raised.

        ``shared``: the other arguments of :func:`sweeps.service.launch.trial.trial`.  ``folder``: for Tune's own files.
        """
        from ray import tune

        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(trial, **shared), {"cpu": resources.cpus, "gpu": resources.gpus}),
            tune_config=tune.TuneConfig(
                search_alg=_searcher(self),
                scheduler=_scheduler(self.queue),
                num_samples=-1,  # until the queue is over
                reuse_actors=True,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(name="packs", storage_path=str(folder), callbacks=[_callback(self)], verbose=0),
        )
        try:
            tuner.fit()
        except RuntimeError as error:
            del tuner
            gc.collect()  # what is left of its workers goes with it
            self._broke(error)
        self.check()

    def check(self) -> None:
        """At a safe place, several times a second: stop after a signal or a failed call, and hear what is asked."""
        self._interruption.check()
        self.calls.check()
        if self._steering is not None and time.monotonic() - self._steered >= STEERING_SECONDS:
            self._steered = time.monotonic()
            for change in self._steering.changes():
                self.queue.add(change.added)
                self.queue.withdraw(change.withdrawn)

    def died(self, name: str, reason: str) -> None:
        """The worker of a pack is gone: killed by the kernel for want of memory, or otherwise."""
        began = self.queue.began(name)
        if "low on memory" in reason or "OutOfMemory" in reason:
            self.queue.ran_out_of_memory(name, Failure(f"Ray's memory monitor killed its worker ({reason})"))
        elif began and _kernel_kills_of(str(began["node"])) > began["kernel_kills"]:
            self.queue.ran_out_of_memory(name, Failure(f"the kernel killed its worker for want of memory ({reason})"))
        else:
            self.queue.died(name, Failure(f"its worker died ({reason})"))

    def _broke(self, error: BaseException) -> None:
        """Ray gave up the whole run.  Its memory monitor does that: one worker was killed, all packs lost theirs."""
        from ray.exceptions import RayError

        causes = _causes(error)
        text = "\n".join(f"{type(cause).__name__}: {cause}" for cause in causes)
        if "low on memory" not in text and "OutOfMemory" not in text:
            self._losses += 1
            if self._losses > MAX_LOSSES or not any(isinstance(cause, RayError) for cause in causes):
                raise error
            # A report that lay on a machine that died before the driver had it, for one.
            self.queue.all_stopped(f"{first_line(causes[-1])}; goes on from its checkpoint")
            return
        killed = text.partition("Selected to kill")[2]
        pids = set(map(int, re.findall(r"\bpid=(\d+)", killed)))
        for victim in self.queue.find(lambda began: began["pid"] in pids and str(began["node"]) in text):
            self.queue.ran_out_of_memory(victim, Failure("Ray's memory monitor killed its worker"))
        self.queue.all_stopped("Ray's memory monitor stopped the run; goes on from its checkpoint")


def _searcher(fit: Fit) -> Any:
    """The queue as what Tune asks for trials."""
    from ray.tune.search import Searcher

    class FromQueue(_NotPickled, Searcher):
        def __init__(self, fit: Fit) -> None:
            super().__init__()
            self._fit = fit
            self._queue = fit.queue

        def suggest(self, trial_id: str) -> Any:
            pack = self._queue.take(trial_id)
            if pack is None:
                # Where nothing trains, Tune takes no steps, only asks again and again, for ten minutes at most.
                self._fit.check()
                pack = self._queue.take(trial_id)
            if pack is not None:
                return to_config(pack)
            return Searcher.FINISHED if self._queue.is_over else None

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            if not error:  # the callback hears of errors, with their text
                self._queue.stopped(trial_id)

        def save(self, checkpoint_path: str) -> None:
            Path(checkpoint_path).touch()

        def restore(self, checkpoint_path: str) -> None:
            raise NotImplementedError("a run is continued from results and checkpoints, never from Tune's own state")

    return FromQueue(fit)


def _scheduler(queue: PackQueue) -> Any:
    """First come, first served; stops packs that hold withdrawn replicas."""
    from ray.tune.schedulers import FIFOScheduler, TrialScheduler

    class StopWithdrawn(_NotPickled, FIFOScheduler):
        def __init__(self, queue: PackQueue) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self._queue = queue

        def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
            stops = self._queue.stops(trial.trial_id)
            return str(TrialScheduler.STOP if stops else TrialScheduler.CONTINUE)

    return StopWithdrawn(queue)


def _callback(fit: Fit) -> Any:
    from ray import tune

    class Forward(_NotPickled, tune.Callback):
        def __init__(self, fit: Fit) -> None:
            self._fit = fit

        def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
            # In the main thread; what is raised here ends the run after Tune cleaned up.
            self._fit.check()
            for known in trials:
                # Tune tells nobody when a worker that is kept cannot be handed the next pack.
                if known.status == "ERROR" and self._fit.queue.training(known.trial_id) is not None:
                    self._fit.died(known.trial_id, _error_of(known))

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            self._fit.queue.report(trial.trial_id, result)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            self._fit.died(trial.trial_id, _error_of(trial))

    return Forward(fit)


class _NotPickled:
    """Tune pickles its parts for a resume that we do not use, and these hold threads, which cannot be."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


def _error_of(trial: Any) -> str:
    """The first line of a trial's error: ``Trial.get_error`` looks where the text is only put later."""
    with suppress(OSError, TypeError):
        _, _, text = Path(trial.error_file).read_text(encoding="utf-8").rpartition("Failure #")
        return first_line(text.partition("\n")[2])
    return "no reason given"


def _name(trial: Any) -> str:
    return str(trial.trial_id)


def _kernel_kills_of(node: str) -> int:
    """:func:`kernel_kills` on that machine; 0 when it does not answer, as one that is gone."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if node == ray.get_runtime_context().get_node_id():
        return kernel_kills()
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    try:
        asked = ray.remote(kernel_kills).options(num_cpus=0, scheduling_strategy=there).remote()
        return int(ray.get(asked, timeout=NODE_SECONDS))
    except (RayError, ValueError):
        return 0


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what led to it, the first cause last."""
    found = []
    at: BaseException | None = error
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found
