"""One stage in three steps, each of which may be a process of its own that knows no other.

A cluster whose machines can't reach each other can still run an array of plain processes that see
the same files. That is enough, because a task is file to file: *begin* looks at what is there and
says how many parts are missing, *compute* computes some of them, *combine* makes the stage's result
from all. An iterated stage goes through the three once a round, until there is a result; its
opening task, which needs no parts, belongs to the first *begin*.

No lock is held: whatever runs beside it, other processes of the same array included, can only
publish the same parts once more, and lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from latentscale_pipeline.engine.executor import SerialExecutor
from latentscale_pipeline.engine.rounds import sweep_rounds
from latentscale_pipeline.engine.run import (
    LOOKING_UP_SECONDS,
    Standing,
    Work,
    foresee,
    is_complete,
    make_task,
    survey,
)
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import FINALISE, TaskFailed
from latentscale_pipeline.errors import BadInput, Incomplete, LatentscaleError, StoreFailed
from latentscale_pipeline.job.publishing import CorruptResult, Cost, sweep_losers, withdraw


@dataclass(frozen=True)
class Step:
    """Where a stage stands between two steps.

    Attributes
    ----------
    stage : Stage
        The stage.
    done : bool
        Whether its result is there.
    round_number : int or None
        The round of an iterated stage that is to be worked on.
    missing : tuple of int
        Parts that are to be computed before the stage, or its round, can be combined.
    """

    stage: Stage
    done: bool
    round_number: int | None
    missing: tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """The ``number``-th of ``of`` processes, counted from 1: every ``of``-th part is its own."""

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"there is no process {self.number} of {self.of}")

    def take(self, parts: Iterable[int]) -> list[int]:
        """Return the parts that are this process' own.

        That depends on nothing but their numbers, so that a process which is started again, when
        others have done theirs, has the same ones to do.
        """
        return [part for part in parts if part % self.of == self.number - 1]


def find_stage(work: Work, name: str) -> Stage:
    """Return the stage of a job that has this name.

    Raises
    ------
    BadInput
        Listing those there are.
    """
    for stage in work.stages:
        if stage.name == name:
            return stage
    raise BadInput(f"{name}: this job's stages are {', '.join(s.name for s in work.stages)}")


def begin(work: Work, stage: Stage, attempt: str) -> Step:
    """Get a stage ready: withdraw what is damaged, take over what other jobs have.

    Of an iterated stage that hasn't begun, its opening task is computed here.

    Raises
    ------
    Incomplete
        If a stage that it needs isn't done.
    """
    needed = [other for other in work.stages if other.name in stage.needs]
    undone = [other.name for other in needed if not is_complete(replace(work, stages=[other]))]
    if undone:
        raise Incomplete(f"stage {stage.name} needs {', '.join(undone)}, which isn't done yet")
    [standing] = survey(replace(work, stages=[stage]))
    if stage.advance is not None and not standing.done and standing.round_number == 0:
        _run(work, standing, [FINALISE], attempt)
        _sweep(work, standing)
    return _step(_look(work, stage))


def compute(work: Work, stage: Stage, share: Share, attempt: str) -> int:
    """Compute those of the missing parts that are one process' share; return how many there were.

    Raises
    ------
    Incomplete
        If parts failed; the others of the share are done.
    """
    standing = _look(work, stage)
    if stage.advance is not None and standing.round_number == 0 and not standing.done:
        raise BadInput(f"stage {stage.name} hasn't begun; run latentscale stage init first")
    own = share.take(_step(standing).missing)
    _run(work, standing, own, attempt)
    return len(own)


def combine(work: Work, stage: Stage, attempt: str) -> Step:
    """Make the result of a stage, or the state of its round, from its parts.

    Raises
    ------
    Incomplete
        If parts are missing.
    """
    standing = _look(work, stage)
    missing = _step(standing).missing
    if missing:
        listed = ", ".join(str(part + 1) for part in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise Incomplete(
            f"stage {stage.name}: of {stage.partitions} parts these are missing: {listed}{more}; "
            "run latentscale stage work again"
        )
    if not standing.done:
        _run(work, standing, [FINALISE], attempt)
    _sweep(work, standing)
    return _step(_look(work, stage))


def _look(work: Work, stage: Stage) -> Standing:
    """Look at a stage; nothing is changed, and of other jobs nothing is known."""
    [standing] = foresee(replace(work, stages=[stage], lenders={}, part_lenders={}))
    return standing


def _step(standing: Standing) -> Step:
    stage = standing.stage
    return Step(
        stage=stage,
        done=standing.done,
        round_number=None if stage.advance is None or standing.done else standing.round_number,
        missing=tuple(part for part in standing.waiting if part != FINALISE),
    )


def _sweep(work: Work, standing: Standing) -> None:
    if standing.stage.advance is not None and not standing.done:
        sweep_rounds(work.store, standing.stage, standing.folder, standing.round_number)
    if is_complete(replace(work, stages=[standing.stage])):
        sweep_losers(work.store, standing.folder)


def _run(work: Work, standing: Standing, parts: Iterable[int], attempt: str) -> None:
    """Compute parts one after another; those that fail don't keep the others from being tried."""
    failures = list(_failures(work, standing, parts, attempt))
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise Incomplete(f"stage {failures[0]}{more}")


def _failures(work: Work, standing: Standing, parts: Iterable[int], attempt: str) -> Iterator[str]:
    """Compute parts; say of each that failed which it was and why."""
    with SerialExecutor() as executor:
        for index in parts:
            task = make_task(work, standing, index, f"{attempt}-{max(index, 0)}")
            for part in {task.part, f"{task.folder}/result"} & set(standing.problems):
                withdraw(work.store, part)
            executor.submit(task)
            ended = None
            while ended is None:
                ended = executor.next_ended(LOOKING_UP_SECONDS)
            ending = ended[1]
            if isinstance(ending, Cost):
                continue
            if isinstance(ending, CorruptResult):
                yield f"{task.label}: {_withdraw(work, ending)}"
            elif isinstance(ending, TaskFailed):
                log = work.store.locate(ending.log)
                yield f"{task.label}: {ending.reason} (log: {log})"
            elif isinstance(ending, StoreFailed) or not isinstance(ending, LatentscaleError):
                raise ending
            elif isinstance(ending, Incomplete):
                yield f"{task.label}: {ending}"
            else:
                raise ending


def _withdraw(work: Work, damage: CorruptResult) -> str:
    """Withdraw what a task found damaged, so that it is computed again, and say what to do."""
    withdraw(work.store, damage.part)
    owner = next((s for s in work.stages if damage.part.startswith(f"{work.folder(s)}/")), None)
    name = "the stage that it belongs to" if owner is None else f"stage {owner.name}"
    return f"{work.store.locate(damage.problem)}; it was withdrawn: begin {name} again"
