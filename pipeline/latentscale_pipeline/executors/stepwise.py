"""One stage in three steps, which can run in separate processes without a connection.

If the machines of a cluster can't reach each other, an array of plain processes that share a file
system can still run a stage, because tasks only read and write files. *Init* inspects the stage and
reports how many parts are missing, *work* computes some of them, and *finalise* computes the
stage's result from all parts. An iterated stage needs the three steps once for every iteration,
until there is a result; its first task, which needs no parts, runs in the first *init*.

No lock is held. If several processes compute the same part, the first one published wins. The
*finalise* that ends a stage also removes what no stage reads any more. A process that is late, on a
part that another one has finished, may find its inputs gone; it has nothing to do then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from latentscale_pipeline.engine.collection import collect_behind
from latentscale_pipeline.engine.iterations import remove_finished_iterations
from latentscale_pipeline.engine.loop import POLL_SECONDS
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.state import (
    StageState,
    has_result,
    inspect_stage,
    is_stage_complete,
    make_task,
)
from latentscale_pipeline.engine.task import FINALISE, TaskFailed
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.errors import BadInput, Incomplete, StoreFailed
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.storage.artifacts import CorruptResult, Cost, collect_garbage, withdraw


@dataclass(frozen=True)
class Share:
    """The share of process ``number`` of ``of``, counted from 1: every ``of``-th part."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"there is no process {self.number} of {self.of}; count from 1")

    def take(self, parts: Iterable[int]) -> list[int]:
        """Return the parts in this share.

        They depend only on the parts' numbers, so a process that is started again has the same
        parts, even if other processes have finished theirs.
        """
        return [part for part in parts if part % self.of == self.number - 1]


def find_stage(work: Work, name: str) -> Stage:
    """Return the stage of a job with the given name.

    Raises
    ------
    BadInput
        If there is none; the message lists all stages.
    """
    for stage in work.stages:
        if stage.name == name:
            return stage
    raise BadInput(
        f"{name}: unknown stage; the stages are {', '.join(s.name for s in work.stages)}"
    )


def init_stage(work: Work, stage: Stage, attempt: str) -> StageState:
    """Prepare a stage: withdraw damaged artifacts, and reuse those of other jobs.

    The first task of an iterated stage, if it isn't done yet, is computed here.

    Raises
    ------
    Incomplete
        If a stage that it needs isn't done.
    """
    state = inspect_stage(work, stage, repair=True)
    if state.done:
        return state
    _refuse_undone_needs(work, stage)
    if stage.advance is not None and state.iteration == 0:
        state = _finalise(work, state, attempt)
    return state


def _refuse_undone_needs(work: Work, stage: Stage) -> None:
    """Refuse to go on with a stage before those that it reads are done."""
    needed = [other for other in work.stages if other.name in stage.needs]
    undone = [other.name for other in needed if not has_result(work, other)]
    if undone and not is_stage_complete(work, stage):  # others may have finished it just now
        raise Incomplete(
            f"stage {stage.name} needs {', '.join(undone)}, which isn't done yet; finalise it first"
        )


def _refuse_unbegun(state: StageState) -> None:
    """Refuse to go on with an iterated stage before its first task, which init runs, is done."""
    stage = state.stage
    if stage.advance is not None and state.iteration == 0 and not state.done:
        raise BadInput(f"stage {stage.name} hasn't begun; run latentscale stage init first")


def work_on_stage(work: Work, stage: Stage, share: Share, attempt: str) -> int:
    """Compute the missing parts in one process' share, and return their number.

    Raises
    ------
    BadInput
        If the stage hasn't been initialised.
    Incomplete
        If a stage that it needs isn't done, or if parts failed; the other parts of the share are
        done.
    """
    state = inspect_stage(work, stage, repair=False)
    _refuse_unbegun(state)
    own = share.take(missing_parts(state))
    if own:
        _refuse_undone_needs(work, stage)
    _run(work, state, own, attempt)
    return len(own)


def finalise_stage(work: Work, stage: Stage, attempt: str) -> StageState:
    """Compute the result of a stage, or the next state of an iterated one, from its parts.

    Raises
    ------
    BadInput
        If the stage hasn't been initialised.
    Incomplete
        If parts are missing, or a stage that it needs isn't done.
    """
    state = inspect_stage(work, stage, repair=False)
    if not state.done:
        _refuse_undone_needs(work, stage)
        _refuse_unbegun(state)
    missing = missing_parts(state)
    if missing:
        listed = ", ".join(str(part + 1) for part in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise Incomplete(
            f"stage {stage.name}: missing parts of {stage.partitions}: {listed}{more}; "
            "run latentscale stage work again"
        )
    if not state.done:
        state = _finalise(work, state, attempt)
    else:
        _collect(work, state)
    return state


def missing_parts(state: StageState) -> list[int]:
    """Return the parts that must be computed before a stage or its iteration can be finalised."""
    return [part for part in state.waiting if part != FINALISE]


def _finalise(work: Work, state: StageState, attempt: str) -> StageState:
    """Run a stage's finalise or advance, remove what isn't needed, and inspect the stage again."""
    _run(work, state, [FINALISE], attempt)
    if state.stage.advance is not None:
        remove_finished_iterations(work.store, state.stage, state.folder, state.iteration)
    after = inspect_stage(work, state.stage, repair=True)
    if after.done:
        _collect(work, after)
    return after


def _collect(work: Work, state: StageState) -> None:
    """Remove what isn't needed any more now that a stage is done."""
    if not state.collected:
        collect_garbage(work.store, state.folder)
    if not work.keep:
        collect_behind(work, state.stage, lambda stage: is_stage_complete(work, stage))


def _run(work: Work, stage_state: StageState, parts: Iterable[int], attempt: str) -> None:
    """Compute parts one after another; after a failure the other parts are still computed."""
    failures = list(_failures(work, stage_state, parts, attempt))
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise Incomplete(f"stage {failures[0]}{more}")


def _failures(
    work: Work, stage_state: StageState, parts: Iterable[int], attempt: str
) -> Iterator[str]:
    """Compute parts, and yield label and reason of each that failed."""
    with ThreadExecutor() as executor:
        for index in parts:
            task = make_task(work, stage_state, index, f"{attempt}-{max(index, 0)}")
            for part in {task.part, f"{task.folder}/result"} & set(stage_state.problems):
                withdraw(work.store, part)
            executor.submit(task)
            ended = None
            while ended is None:
                ended = executor.next_ended(POLL_SECONDS)
            ending = ended[1]
            if isinstance(ending, Cost):
                continue
            if isinstance(ending, CorruptResult) and is_stage_complete(work, task.stage):
                continue  # others have finished it, and what it read is gone
            if isinstance(ending, CorruptResult):
                yield f"{task.label}: {_withdraw(work, ending)}"
            elif isinstance(ending, TaskFailed):
                log = work.store.locate(ending.log)
                yield f"{task.label}: {ending.reason} (log: {log})"
            elif isinstance(ending, Incomplete) and not isinstance(ending, StoreFailed):
                yield f"{task.label}: {ending}"
            else:
                raise ending


def _withdraw(work: Work, damage: CorruptResult) -> str:
    """Withdraw an artifact that a task found damaged, and return what to do, for a message."""
    withdraw(work.store, damage.part)
    owner = next((s for s in work.stages if damage.part.startswith(f"{work.folder(s)}/")), None)
    name = "the stage that it belongs to" if owner is None else f"stage {owner.name}"
    return f"{work.store.locate(damage.problem)}; it was withdrawn: run init of {name} again"
