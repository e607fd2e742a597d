"""Run the missing parts of a job's stages.

A run begins with the state of every stage and submits missing parts to an executor as soon as the
stages that they need are done. Independent stages run concurrently. Data that only other stages
read are removed once these are done. A part that fails is retried, on another worker if there is
one. If it keeps failing, the stages that need it are skipped, the others are finished, and the run
ends incomplete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from latentscale_pipeline.engine.collection import collect_behind
from latentscale_pipeline.engine.executor import Ending, Executor
from latentscale_pipeline.engine.iterations import remove_finished_iterations
from latentscale_pipeline.engine.memory import idle_memory
from latentscale_pipeline.engine.state import (
    StageState,
    find_owner,
    invalidate,
    make_task,
    return_to_iteration,
)
from latentscale_pipeline.engine.task import FINALISE, Task, TaskFailed, WorkerDied
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.errors import BadInput, Incomplete, StoreFailed, TargetMissed
from latentscale_pipeline.storage.artifacts import (
    CorruptResult,
    Cost,
    collect_garbage,
    read_marker,
)
from latentscale_pipeline.storage.cancellation import Check, never
from latentscale_pipeline.storage.objects import ObjectStore

POLL_SECONDS = 0.5
"""How long the loop waits for a task before it checks for cancellation."""

REPAIRS = 2
"""How many times one damaged result is replaced in a run."""


class Notify(Protocol):
    """Receives events, each as its name and fields."""

    def __call__(self, event: str, **fields: Any) -> None:
        """Receive an event."""


def run_stages(
    work: Work,
    stage_states: Sequence[StageState],
    open_executor: Callable[[], AbstractContextManager[Executor]],
    attempt: str,
    notify: Notify,
    check: Check = never,
) -> None:
    """Run all missing parts.

    Parameters
    ----------
    work : Work
        The stages and the job's folder.
    stage_states : sequence of StageState
        As returned by :func:`~latentscale_pipeline.engine.state.inspect_stages`; updated in place.
    open_executor : callable
        Starts the executor; not called if nothing is missing.
    attempt : str
        Identifies this run in the names of the objects that it writes.
    notify : callable
        Receives every event.
    check : callable
        Called between tasks and during long ones. An exception that it raises ends the run, even
        if tasks are running.

    Raises
    ------
    BadInput
        If a corpus is damaged.
    Incomplete, TargetMissed
        If parts kept failing. All stages that don't depend on them are done.
    StoreFailed
        If the job folder can't be reached or written.
    """
    for stage_state in stage_states:
        if stage_state.done:
            notify("stage_found", stage=stage_state.stage.name, reason=stage_state.reason)
        for part in stage_state.problems:
            notify(
                "part_corrupt", stage=stage_state.stage.name, problem=stage_state.part_reason(part)
            )
    if all(stage_state.done for stage_state in stage_states):
        return
    with open_executor() as executor:
        by_name = {stage_state.stage.name: stage_state for stage_state in stage_states}
        _Loop(work, by_name, executor, attempt, notify, check).run()
    failed = [stage_state for stage_state in stage_states if stage_state.failure]
    if failed:
        more = f" (and {len(failed) - 1} more stages)" if len(failed) > 1 else ""
        message = f"stage {_describe_failure(work.store, failed[0])}{more}"
        if all(isinstance(stage_state.failure, TargetMissed) for stage_state in failed):
            raise TargetMissed(message)
        raise Incomplete(f"{message}; run the same command again to retry")


def repair(
    store: ObjectStore, stage_states: Sequence[StageState], problem: CorruptResult, notify: Notify
) -> StageState | None:
    """Withdraw a damaged result and return the stage that recomputes it; None if none does."""
    owner = find_owner(stage_states, problem)
    if owner is not None:
        invalidate(store, stage_states, owner, problem)
        notify("part_corrupt", stage=owner.stage.name, problem=owner.part_reason(problem.part))
    return owner


def _describe_failure(store: ObjectStore, stage_state: StageState) -> str:
    """Return one line that names the failed part of a stage, the reason, and the log."""
    where = stage_state.failed.label if stage_state.failed else stage_state.stage.name
    failure = stage_state.failure
    if isinstance(failure, TaskFailed):
        return f"{where}: {failure.reason} (log: {store.locate(failure.log)})"
    return f"{where}: {failure}"


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


@dataclass
class _Loop:
    _work: Work
    _stage_states: Mapping[str, StageState]
    _executor: Executor
    _attempt: str
    _notify: Notify
    _check: Check
    _tries: Counter[str] = field(default_factory=Counter)
    _deaths: Counter[str] = field(default_factory=Counter)
    _repairs: Counter[str] = field(default_factory=Counter)
    _running: int = 0
    _steps: int = 0
    _submitted: dict[str, int] = field(default_factory=dict)
    _withdrawn: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        for stage_state in self._stage_states.values():
            if stage_state.done:  # an earlier run may have ended before it removed everything
                self._collect_behind(stage_state)
        while self._submit_ready() or self._running:
            self._check()
            ended = self._executor.next_ended(POLL_SECONDS)
            if ended is None:
                continue
            task, ending = ended
            self._running -= 1
            self._steps += 1
            stage_state = self._stage_states[task.stage.name]
            stage_state.running.discard(task.index)
            self._settle(stage_state, task, ending)

    def _submit_ready(self) -> bool:
        submitted = False
        for stage_state in self._stage_states.values():
            if stage_state.done or stage_state.failure or stage_state.damaged:
                continue
            if not self._needs_met(stage_state):
                continue
            while stage_state.waiting and self._running < self._executor.window:
                self._submit(stage_state, stage_state.waiting.popleft())
                submitted = True
        return submitted

    def _needs_met(self, stage_state: StageState) -> bool:
        return all(self._stage_states[name].done for name in stage_state.stage.needs)

    def _submit(self, stage_state: StageState, index: int) -> None:
        stage = stage_state.stage
        if not stage_state.started:
            stage_state.started = True
            self._notify(
                "stage_started",
                stage=stage.name,
                parts=stage.partitions,
                found=stage_state.found,
                reason=stage_state.reason,
            )
        tries = self._tries.total() + self._repairs.total()
        task = make_task(self._work, stage_state, index, f"{self._attempt}-{tries}")
        stage_state.running.add(index)
        self._submitted[task.part] = self._steps
        self._running += 1
        self._executor.submit(task)

    def _settle(self, stage_state: StageState, task: Task, ending: Ending) -> None:
        if isinstance(ending, Cost):
            self._settle_done(stage_state, task, ending)
        elif isinstance(ending, CorruptResult):
            self._repair(stage_state, task, ending)
        elif isinstance(ending, BadInput) or not isinstance(ending, Exception):
            raise ending
        elif isinstance(ending, TargetMissed):
            self._fail(stage_state, task, ending)
        else:
            self._retry(stage_state, task, ending)
        if stage_state.damaged and not stage_state.running:
            return_to_iteration(self._work.store, stage_state)

    def _settle_done(self, stage_state: StageState, task: Task, cost: Cost) -> None:
        stage = stage_state.stage
        self._notify(
            "part_done",
            stage=stage.name,
            part=task.index,
            parts=stage.partitions,
            done=stage.partitions - len(stage_state.waiting) - len(stage_state.running),
            seconds=cost.seconds,
            peak_memory_bytes=cost.peak_memory_bytes,
            key=task.part,
            reason=stage_state.part_reason(task.part),
            **({} if stage.advance is None else {"round": task.iteration}),
        )
        if stage.advance is not None and task.index == FINALISE:
            self._settle_iteration(stage_state)
        elif task.part.endswith("/result"):
            self._settle_stage(stage_state)
        elif not stage_state.waiting and not stage_state.running:
            if stage_state.finalised:
                self._settle_stage(stage_state)
            else:
                stage_state.waiting.append(FINALISE)

    def _settle_stage(self, stage_state: StageState) -> None:
        stage_state.done = True
        there = collect_garbage(self._work.store, stage_state.folder)
        self._notify("stage_done", stage=stage_state.stage.name)
        self._collect_behind(stage_state, there)

    def _collect_behind(
        self, stage_state: StageState, there: Collection[str] | None = None
    ) -> None:
        """Remove what no stage reads any more now that this one is done."""
        if self._work.keep:
            return
        states = self._stage_states
        for stage in collect_behind(
            self._work, stage_state.stage, lambda s: states[s.name].done, there
        ):
            states[stage.name].collected = stage.temporary != "parts"

    def _settle_iteration(self, stage_state: StageState) -> None:
        remove_finished_iterations(
            self._work.store, stage_state.stage, stage_state.folder, stage_state.iteration
        )
        if read_marker(self._work.store, f"{stage_state.folder}/result") is not None:
            self._settle_stage(stage_state)
            return
        stage_state.iteration += 1
        stage_state.waiting.extend(range(stage_state.stage.partitions))

    def _repair(self, stage_state: StageState, task: Task, problem: CorruptResult) -> None:
        """Recompute the damaged part of an earlier result, and then this task."""
        if self._submitted[task.part] < self._withdrawn.get(problem.part, -1):
            # Another task reported the damage, and the result was withdrawn after this one read it.
            stage_state.waiting.append(task.index)
            return
        self._repairs[problem.part] += 1
        owner = None
        if self._repairs[problem.part] <= REPAIRS:
            states = list(self._stage_states.values())
            owner = repair(self._work.store, states, problem, self._notify)
        if owner is None:
            self._fail(stage_state, task, problem)
            return
        self._withdrawn[problem.part] = self._steps
        if stage_state is not owner:
            stage_state.waiting.append(task.index)

    def _retry(self, stage_state: StageState, task: Task, error: Exception) -> None:
        self._tries[task.part] += 1
        if isinstance(error, WorkerDied):
            error = self._log_death(task, error)
        if self._tries[task.part] > self._work.retries:
            self._fail(stage_state, task, error)
            return
        self._notify(
            "part_retried",
            stage=task.stage.name,
            part=task.index,
            parts=task.stage.partitions,
            problem=str(error),
        )
        stage_state.waiting.append(task.index)

    def _log_death(self, task: Task, death: WorkerDied) -> TaskFailed:
        """Write the log that the dead worker couldn't write, with the likely cause of its death."""
        self._deaths[task.part] += 1
        times = self._deaths[task.part]
        projected = task.stage.memory_bytes + idle_memory(self._work.stages)
        cause = "likely out of memory" if death.held is None else "out of memory"
        held = "" if death.held is None else f"{_gibibytes(death.held)} held, "
        reason = (
            f"worker died {'once' if times == 1 else f'{times} times'} on this task; {cause}: "
            f"{held}{_gibibytes(projected)} projected, limit {_gibibytes(death.memory_limit)} "
            "(cluster.memory_limit)"
        )
        log = f"{task.part}.{task.attempt}.log"
        self._work.store.write(log, f"{task.label}: {reason}\nworker: {death.worker}\n".encode())
        return TaskFailed(reason, log)

    def _fail(self, stage_state: StageState, task: Task, error: Exception) -> None:
        if isinstance(error, StoreFailed):
            raise error  # the other stages would fail in the same way
        stage_state.failure, stage_state.failed = error, task
        self._notify("stage_failed", stage=task.stage.name, part=task.index, problem=str(error))
