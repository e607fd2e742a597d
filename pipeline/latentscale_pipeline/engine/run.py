"""The loop that brings a job's stages from what is there to what is asked for.

The job folder is the truth. A run begins by looking at which results are there and whole, takes
over what a sibling job has already computed under the same key, and hands the rest to an executor
in the order in which needs are met. Stages that don't depend on each other run side by side. A
part that fails is tried again, elsewhere where there is an elsewhere; when it keeps failing the
stages that need it are given up, the rest goes on, and the run ends incomplete.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.engine.executor import Ending, Executor
from latentscale_pipeline.engine.look import Look
from latentscale_pipeline.engine.memory import idle_memory
from latentscale_pipeline.engine.reasons import changes
from latentscale_pipeline.engine.rounds import find_round, sweep_rounds
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import FINALISE, Task, TaskFailed, WorkerDied, part_key
from latentscale_pipeline.errors import (
    BadInput,
    Incomplete,
    LatentscaleError,
    StoreFailed,
    TargetMissed,
)
from latentscale_pipeline.job.publishing import (
    CorruptResult,
    Cost,
    Published,
    adopt,
    adopt_part,
    check_sizes,
    need_marker,
    read_marker,
    sweep_losers,
    withdraw,
)
from latentscale_pipeline.job.stopping import Check, never
from latentscale_pipeline.objects import ObjectStore

LOOKING_UP_SECONDS = 0.5
"""How long the loop waits for a task before it asks whether it should stop."""

REPAIRS = 2
"""How often one damaged result is replaced in one run."""


class Notify(Protocol):
    """Receives what happens: an event's name and its fields."""

    def __call__(self, event: str, **fields: Any) -> None:
        """Take note of an event."""


@dataclass(frozen=True)
class Earlier:
    """What a stage depended on in an earlier plan, and which plan that was, in words."""

    when: str
    dependences: Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """Everything a run works on.

    Attributes
    ----------
    store : ObjectStore
        The job folder.
    stages : sequence of Stage
        Each after those it needs.
    keys : mapping
        Stage keys by name.
    corpora : mapping
        The corpora by role.
    lenders : mapping
        By stage key: other job folders that planned the same stage and may have its result.
    part_lenders : mapping
        By part key (:attr:`Stage.part_keys`): job folders and parts in them that may have the same.
    dependences : mapping
        By stage name: what its key was made from.
    earlier : mapping
        By stage name: the same, from plans before this one, each with the words for when.
    retries : int
        How often a part that failed is tried again.
    """

    store: ObjectStore
    stages: Sequence[Stage]
    keys: Mapping[str, str]
    corpora: Mapping[str, Corpus]
    lenders: Mapping[str, Sequence[ObjectStore]] = field(default_factory=dict)
    part_lenders: Mapping[str, Sequence[tuple[ObjectStore, str]]] = field(default_factory=dict)
    dependences: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    earlier: Mapping[str, Sequence[Earlier]] = field(default_factory=dict)
    retries: int = 2

    def folder(self, stage: Stage) -> str:
        """Where a stage's results are: its name and its key."""
        return f"{stage.folder}/{self.keys[stage.name]}"

    def result(self, stage: Stage) -> Published:
        """Return the result of a stage that is done."""
        return need_marker(self.store, f"{self.folder(stage)}/result")


@dataclass
class Standing:
    """Where one stage stands in this run.

    Attributes
    ----------
    combined : bool
        Whether the parts' combined result is there.
    found : int
        Parts that were there at the beginning.
    origin : str
        Where the result comes from, or why it has to be computed.
    problems : dict
        What was wrong with results that had to be withdrawn, by part.
    """

    stage: Stage
    folder: str
    done: bool = False
    waiting: deque[int] = field(default_factory=deque)
    running: set[int] = field(default_factory=set)
    round_number: int = 0
    damaged: bool = False
    combined: bool = False
    found: int = 0
    origin: str = ""
    problems: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None
    failed: Task | None = None
    started: bool = False

    @property
    def reason(self) -> str:
        """Why the stage is, or isn't, computed in this run."""
        if not self.problems:
            return self.origin
        first, *others = self.problems
        what = self.part_reason(first)
        what += f" (and {len(others)} more)" if others else ""
        return what if self.origin == "computed" else f"{self.origin}; {what}"

    def part_reason(self, part: str) -> str:
        """Why one part is computed."""
        if part not in self.problems:
            return self.origin
        return f"recomputed: {self.problems[part].removeprefix(f'{self.folder}/')}"


def is_complete(work: Work) -> bool:
    """Tell whether the results of every stage are there; nothing is withdrawn or taken over."""
    return all(_is_complete(work, stage) for stage in work.stages)


def _is_complete(work: Work, stage: Stage) -> bool:
    folder = work.folder(stage)
    sizes = work.store.sizes(folder)
    # What an iterated stage computed in its rounds doesn't outlive them.
    indices = range(stage.partitions if stage.advance is None else 0)
    parts = {f"{folder}/result", *(part_key(folder, stage, index) for index in indices)}
    return all(_is_there(work.store, part, sizes) for part in parts)


def _is_there(store: ObjectStore, part: str, sizes: Mapping[str, int]) -> bool:
    """Tell whether a part is there and whole, by the sizes of its objects."""
    if f"{part}.json" not in sizes:
        return False
    try:
        check_sizes(need_marker(store, part), sizes)
    except CorruptResult:
        return False
    return True


def survey(work: Work, *, thorough: bool = False) -> list[Standing]:
    """Look at what is there: for every stage, whether it is done and which parts are missing.

    Parameters
    ----------
    work : Work
        The stages and where they live.
    thorough : bool
        Check every byte of every result; else presence and sizes.
    """
    return [_stand(work, stage, thorough) for stage in work.stages]


def foresee(work: Work) -> list[Standing]:
    """Tell what :func:`survey` would find; nothing is withdrawn or taken over.

    Other jobs' results aren't read to the last byte, so one with a flipped bit counts as reusable.
    """
    return [_foresee(work, stage) for stage in work.stages]


def _foresee(work: Work, stage: Stage) -> Standing:
    folder = work.folder(stage)
    standing = Standing(stage, folder)
    look = Look(work.store, work.store.sizes(folder), problems=standing.problems, withdrawing=False)
    whole = look.has(f"{folder}/result")
    lender = None if whole else _find_lender(work, stage)
    if lender is not None:
        standing.problems.clear()
        standing.done, standing.found = True, stage.partitions
        standing.origin = f"reused from {lender}"
        return standing
    lent: list[int] = []
    if stage.advance is not None:
        _stand_in_round(standing, look, whole)
    else:
        _stand_in_parts(standing, look, whole)
        lent = _find_parts(work, stage, standing.waiting)
        for index in lent:
            standing.waiting.remove(index)
            standing.found += 1
    standing.origin = _parts_origin(standing, len(lent)) if lent else _origin(work, standing)
    return standing


def _find_parts(work: Work, stage: Stage, waiting: Iterable[int]) -> list[int]:
    """Return those of the parts whose results other jobs have, to all appearance whole."""
    keys, looks = stage.part_keys, dict[str, Look | None]()

    def look(lender: ObjectStore, folder: str) -> Look | None:
        try:
            return Look(lender, lender.sizes(folder), withdrawing=False)
        except (OSError, LatentscaleError):
            return None  # another job's folder may be private, or changing under our eyes

    def is_there(lender: ObjectStore, part: str) -> bool:
        folder = part.rpartition("/")[0]
        place = lender.locate(folder)
        if place not in looks:
            looks[place] = look(lender, folder)
        found = looks[place]
        try:
            return found is not None and found.has(part)
        except (OSError, LatentscaleError):
            return False

    if not keys:
        return []
    return [
        index
        for index in waiting
        if index != FINALISE
        and any(is_there(lender, part) for lender, part in work.part_lenders.get(keys[index], ()))
    ]


def _find_lender(work: Work, stage: Stage) -> str | None:
    """Return the name of another job that has a stage's result, to all appearance whole."""
    folder = work.folder(stage)
    for lender in work.lenders.get(work.keys[stage.name], ()):
        try:
            look = Look(lender, lender.sizes(folder), withdrawing=False)
            parts = [key.removesuffix(".json") for key in look.sizes if key.endswith(".json")]
            whole = f"{folder}/result" in parts and all(look.has(part) for part in parts)
        except (OSError, LatentscaleError):
            continue  # another job's folder may be private, or changing under our eyes
        if whole:
            return lender.url.rpartition("/")[2]
    return None


def _stand(work: Work, stage: Stage, thorough: bool) -> Standing:
    folder = work.folder(stage)
    standing = Standing(stage, folder)
    look = Look(work.store, work.store.sizes(folder), thorough, standing.problems)
    whole = look.has(f"{folder}/result")
    lender = None if whole else _borrow(work, stage)
    if lender is not None:
        standing.problems.clear()
        look = Look(work.store, work.store.sizes(folder), False, standing.problems)
        whole = look.has(f"{folder}/result")
    borrowed = 0
    if stage.advance is not None:
        _stand_in_round(standing, look, whole)
    else:
        _stand_in_parts(standing, look, whole)
        borrowed = _borrow_parts(work, standing)
    if lender is not None:
        standing.origin = f"reused from {lender}"
    else:
        standing.origin = _parts_origin(standing, borrowed) if borrowed else _origin(work, standing)
    return standing


def _parts_origin(standing: Standing, borrowed: int) -> str:
    return f"resumed: {borrowed} of {standing.stage.partitions} parts reused from other jobs"


def _borrow_parts(work: Work, standing: Standing) -> int:
    """Take over the parts that other jobs have, and tell how many."""
    stage, borrowed = standing.stage, 0
    if not stage.part_inputs:
        return 0
    keys = stage.part_keys
    for index in [index for index in standing.waiting if index != FINALISE]:
        target = part_key(standing.folder, stage, index)
        lenders = work.part_lenders.get(keys[index], ())
        if any(adopt_part(lender, part, work.store, target) for lender, part in lenders):
            standing.waiting.remove(index)
            borrowed += 1
    standing.found += borrowed
    if borrowed and not standing.waiting:
        standing.waiting.append(FINALISE)
    return borrowed


def _stand_in_parts(standing: Standing, look: Look, whole: bool) -> None:
    stage = standing.stage
    parts = [part_key(standing.folder, stage, index) for index in range(stage.partitions)]
    # The only part of a stage may be its result, and that has been looked at.
    there = [whole if part.endswith("/result") else look.has(part) for part in parts]
    missing = [index for index, found in enumerate(there) if not found]
    standing.found = stage.partitions - len(missing)
    standing.combined = whole
    standing.done = whole and not missing
    standing.waiting.extend(missing)
    if not missing and not whole:
        standing.waiting.append(FINALISE)


def _stand_in_round(standing: Standing, look: Look, whole: bool) -> None:
    standing.done = whole
    standing.found = standing.stage.partitions if whole else 0
    if whole:
        return
    found = find_round(look, standing.stage, standing.folder)
    standing.round_number = found.number
    if found.number:
        standing.found = standing.stage.partitions - len(found.missing)
    standing.waiting.extend(found.missing or (FINALISE,))


def _borrow(work: Work, stage: Stage) -> str | None:
    """Copy a stage's result from another job, and return that job's name."""
    for lender in work.lenders.get(work.keys[stage.name], ()):
        if adopt(lender, work.store, work.folder(stage)):
            return lender.url.rpartition("/")[2]
    return None


def _origin(work: Work, standing: Standing) -> str:
    stage = standing.stage
    if standing.done:
        return "already done"
    if standing.round_number:
        return (
            f"resumed in round {standing.round_number}: "
            f"{standing.found} of {stage.partitions} parts were there"
        )
    if standing.found:
        return f"resumed: {standing.found} of {stage.partitions} parts were there"
    if standing.problems:
        return "computed"
    for earlier in work.earlier.get(stage.name, ()):
        changed = changes(earlier.dependences, work.dependences[stage.name])
        if changed:
            return f"computed: {changed} changed since {earlier.when}"
    if work.store.folders(stage.folder):
        return "computed: configuration, input or code differ from an earlier run"
    return "computed"


def make_task(work: Work, standing: Standing, index: int, attempt: str) -> Task:
    """Describe one part of a stage, in the round that it is in, so that any process can do it."""
    stage = standing.stage
    return Task(
        store=work.store,
        stage=stage,
        index=index,
        folders={name: f"stages/{name}/{work.keys[name]}" for name in (stage.name, *stage.needs)},
        corpora={role: work.corpora[role] for role in stage.corpora},
        attempt=attempt,
        round_number=standing.round_number,
    )


def redo(store: ObjectStore, standing: Standing, problem: CorruptResult) -> None:
    """Withdraw a damaged result of a stage, so that it is computed again."""
    withdraw(store, problem.part)
    standing.problems[problem.part] = problem.problem
    standing.done = False
    if standing.stage.advance is not None:
        standing.damaged = True
        if not standing.running:
            _return_to_round(store, standing)
        return
    name = problem.part.rpartition("/")[2]
    index = FINALISE if name == "result" else int(name.removeprefix("part-"))
    if part_key(standing.folder, standing.stage, 0) == problem.part:
        index = 0
    standing.combined = standing.combined and name != "result"
    if index not in standing.waiting and index not in standing.running:
        standing.waiting.append(index)


def _return_to_round(store: ObjectStore, standing: Standing) -> None:
    """Go on from the newest whole state, once nothing of a damaged one is under way."""
    standing.damaged = False
    standing.waiting.clear()
    look = Look(store, store.sizes(standing.folder), False, standing.problems)
    _stand_in_round(standing, look, whole=False)


def run_stages(
    work: Work,
    standings: Sequence[Standing],
    open_executor: Callable[[], AbstractContextManager[Executor]],
    attempt: str,
    notify: Notify,
    check: Check = never,
) -> None:
    """Compute what is missing.

    Parameters
    ----------
    work : Work
        The stages and where they live.
    standings : sequence of Standing
        What :func:`survey` found; brought up to date.
    open_executor : callable
        Starts the executor; not called when nothing is missing.
    attempt : str
        Identifies this run in the names of what it writes.
    notify : callable
        Told of every event.
    check : callable
        Asked between tasks, and during a long one: what it raises ends the run, whatever is
        under way.

    Raises
    ------
    BadInput
        If a corpus turns out to be damaged.
    Incomplete, TargetMissed
        If parts kept failing; everything that doesn't depend on them is done.
    StoreFailed
        If the job folder can't be reached or written to.
    """
    for standing in standings:
        if standing.done:
            notify("stage_found", stage=standing.stage.name, reason=standing.reason)
        for part in standing.problems:
            notify("part_corrupt", stage=standing.stage.name, problem=standing.part_reason(part))
    if all(standing.done for standing in standings):
        return
    with open_executor() as executor:
        _Loop(work, standings, executor, attempt, notify, check).run()
    failed = [standing for standing in standings if standing.failure]
    if failed:
        more = f" (and {len(failed) - 1} more stages)" if len(failed) > 1 else ""
        message = f"stage {_told(work.store, failed[0])}{more}"
        if all(isinstance(standing.failure, TargetMissed) for standing in failed):
            raise TargetMissed(message)
        raise Incomplete(f"{message}; run the same command again to retry")


def _told(store: ObjectStore, standing: Standing) -> str:
    """Say in one line which part of a stage failed, why, and where its log is."""
    where = standing.failed.label if standing.failed else standing.stage.name
    failure = standing.failure
    if isinstance(failure, TaskFailed):
        return f"{where}: {failure.reason} (log: {store.locate(failure.log)})"
    return f"{where}: {failure}"


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


class _Loop:
    def __init__(
        self,
        work: Work,
        standings: Sequence[Standing],
        executor: Executor,
        attempt: str,
        notify: Notify,
        check: Check,
    ) -> None:
        self._work = work
        self._standings = {standing.stage.name: standing for standing in standings}
        self._executor = executor
        self._attempt = attempt
        self._notify = notify
        self._check = check
        self._tries: Counter[str] = Counter()
        self._deaths: Counter[str] = Counter()
        self._repairs: Counter[str] = Counter()
        self._running = 0
        self._steps = 0
        self._submitted: dict[str, int] = {}
        self._withdrawn: dict[str, int] = {}

    def run(self) -> None:
        while self._submit_ready() or self._running:
            self._check()
            ended = self._executor.next_ended(LOOKING_UP_SECONDS)
            if ended is None:
                continue
            task, ending = ended
            self._running -= 1
            self._steps += 1
            standing = self._standings[task.stage.name]
            standing.running.discard(task.index)
            self._settle(standing, task, ending)

    def _submit_ready(self) -> bool:
        submitted = False
        for standing in self._standings.values():
            if standing.done or standing.failure or standing.damaged:
                continue
            if not self._needs_met(standing):
                continue
            while standing.waiting and self._running < self._executor.window:
                self._submit(standing, standing.waiting.popleft())
                submitted = True
        return submitted

    def _needs_met(self, standing: Standing) -> bool:
        return all(self._standings[name].done for name in standing.stage.needs)

    def _submit(self, standing: Standing, index: int) -> None:
        stage = standing.stage
        if not standing.started:
            standing.started = True
            self._notify(
                "stage_started",
                stage=stage.name,
                parts=stage.partitions,
                found=standing.found,
                reason=standing.reason,
            )
        tries = self._tries.total() + self._repairs.total()
        task = make_task(self._work, standing, index, f"{self._attempt}-{tries}")
        standing.running.add(index)
        self._submitted[task.part] = self._steps
        self._running += 1
        self._executor.submit(task)

    def _settle(self, standing: Standing, task: Task, ending: Ending) -> None:
        if isinstance(ending, Cost):
            self._settle_done(standing, task, ending)
        elif isinstance(ending, CorruptResult):
            self._repair(standing, task, ending)
        elif isinstance(ending, BadInput) or not isinstance(ending, Exception):
            raise ending
        elif isinstance(ending, TargetMissed):
            self._fail(standing, task, ending)
        else:
            self._retry(standing, task, ending)
        if standing.damaged and not standing.running:
            _return_to_round(self._work.store, standing)

    def _settle_done(self, standing: Standing, task: Task, cost: Cost) -> None:
        stage = standing.stage
        self._notify(
            "part_done",
            stage=stage.name,
            part=task.index,
            parts=stage.partitions,
            done=stage.partitions - len(standing.waiting) - len(standing.running),
            seconds=cost.seconds,
            peak_memory_bytes=cost.peak_memory_bytes,
            key=task.part,
            reason=standing.part_reason(task.part),
            **({} if stage.advance is None else {"round": task.round_number}),
        )
        if stage.advance is not None and task.index == FINALISE:
            self._settle_round(standing)
        elif task.part.endswith("/result"):
            self._settle_stage(standing)
        elif not standing.waiting and not standing.running:
            if standing.combined:
                self._settle_stage(standing)
            else:
                standing.waiting.append(FINALISE)

    def _settle_stage(self, standing: Standing) -> None:
        standing.done = True
        sweep_losers(self._work.store, standing.folder)
        self._notify("stage_done", stage=standing.stage.name)

    def _settle_round(self, standing: Standing) -> None:
        sweep_rounds(self._work.store, standing.stage, standing.folder, standing.round_number)
        if read_marker(self._work.store, f"{standing.folder}/result") is not None:
            self._settle_stage(standing)
            return
        standing.round_number += 1
        standing.waiting.extend(range(standing.stage.partitions))

    def _repair(self, standing: Standing, task: Task, problem: CorruptResult) -> None:
        """Redo the damaged part of an earlier result, and then this task."""
        owner = next(
            (s for s in self._standings.values() if problem.part.startswith(f"{s.folder}/")), None
        )
        if self._submitted[task.part] < self._withdrawn.get(problem.part, -1):
            # It read the damaged result before that was withdrawn on another reader's word.
            standing.waiting.append(task.index)
            return
        self._repairs[problem.part] += 1
        if owner is None or self._repairs[problem.part] > REPAIRS:
            self._fail(standing, task, problem)
            return
        redo(self._work.store, owner, problem)
        self._notify(
            "part_corrupt", stage=owner.stage.name, problem=owner.part_reason(problem.part)
        )
        self._withdrawn[problem.part] = self._steps
        if standing is not owner:
            standing.waiting.append(task.index)

    def _retry(self, standing: Standing, task: Task, error: Exception) -> None:
        self._tries[task.part] += 1
        if isinstance(error, WorkerDied):
            error = self._log_death(task, error)
        if self._tries[task.part] > self._work.retries:
            self._fail(standing, task, error)
            return
        self._notify(
            "part_retried",
            stage=task.stage.name,
            part=task.index,
            parts=task.stage.partitions,
            problem=str(error),
        )
        standing.waiting.append(task.index)

    def _log_death(self, task: Task, death: WorkerDied) -> TaskFailed:
        """Write the log that a worker could not write, and say what killed it most likely."""
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

    def _fail(self, standing: Standing, task: Task, error: Exception) -> None:
        if isinstance(error, StoreFailed):
            raise error  # the other stages would only fail on it, too
        standing.failure, standing.failed = error, task
        self._notify("stage_failed", stage=task.stage.name, part=task.index, problem=str(error))
