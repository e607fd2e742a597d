"""Find the state of every stage of a job by inspecting the job's folder.

An inspection finds the results that are present and intact, copies results that other jobs have
under the same keys, and withdraws damaged results, so that they are recomputed. A missing temporary
result is recomputed only if a stage that reads it isn't done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from latentscale_pipeline.engine.changes import changes
from latentscale_pipeline.engine.collection import record_collected
from latentscale_pipeline.engine.inspection import COLLECTED, Inspection, list_stages
from latentscale_pipeline.engine.iterations import find_iteration
from latentscale_pipeline.engine.reuse import reuse_parts, reuse_record, reuse_result
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.engine.task import FINALISE, NOTHING_SPENT, Task, lasting_parts, part_key
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.storage.artifacts import CorruptResult, withdraw
from latentscale_pipeline.storage.objects import ObjectStore, run_requests


@dataclass
class StageState:
    """The state of one stage in this run.

    Attributes
    ----------
    finalised : bool
        Whether the result that combines all parts is there.
    collected : bool
        Whether the stage is done and what other stages read of it was removed.
    found : int
        Number of parts that were there when the run began.
    origin : str
        The source of the result, or why it has to be computed.
    problems : dict
        The problem of each withdrawn result, by part.
    """

    stage: Stage
    folder: str
    done: bool = False
    waiting: deque[int] = field(default_factory=deque)
    running: set[int] = field(default_factory=set)
    iteration: int = 0
    damaged: bool = False
    finalised: bool = False
    collected: bool = False
    found: int = 0
    origin: str = ""
    problems: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None
    failed: Task | None = None
    started: bool = False

    @property
    def reason(self) -> str:
        """Return why the stage is or isn't computed in this run."""
        if not self.problems:
            return self.origin
        first, *others = self.problems
        what = self.part_reason(first)
        what += f" (and {len(others)} more)" if others else ""
        return what if self.origin == "computed" else f"{self.origin}; {what}"

    def part_reason(self, part: str) -> str:
        """Return why one part is computed."""
        if part not in self.problems:
            return self.origin
        return f"recomputed: {self.problems[part].removeprefix(f'{self.folder}/')}"


def is_complete(work: Work) -> bool:
    """Return whether every stage of a job is complete; nothing is changed."""
    listed = list_stages(work.store)
    return all(
        run_requests(work.store, lambda stage: _is_complete(work, stage, listed), work.stages)
    )


def is_stage_complete(work: Work, stage: Stage) -> bool:
    """Return whether a stage has its result, or a record that it was collected."""
    return _is_complete(work, stage, list_stages(work.store, work.folder(stage)))


def _is_complete(work: Work, stage: Stage, listed: Mapping[str, Mapping[str, int]]) -> bool:
    folder = work.folder(stage)
    inspection = Inspection(work.store, folder, repair=False, listed=listed.get(folder, {}))
    collected = stage.temporary == "result" and inspection.record is not None
    return collected or _has_all(stage, inspection)


def has_result(work: Work, stage: Stage, *, passing: bool = False) -> bool:
    """Return whether everything that others read of a stage is present, with the right sizes.

    Its ``passing`` arrays may be missing unless they are asked for.
    """
    collected = stage.temporary == "parts" and not passing
    inspection = Inspection(work.store, work.folder(stage), repair=False, collected=collected)
    parts = lasting_parts(inspection.folder, stage)
    return all(inspection.have(parts if stage.lasting_parts else parts[-1:]))


def _has_all(stage: Stage, inspection: Inspection) -> bool:
    parts = lasting_parts(inspection.folder, stage)
    return all(inspection.have(parts[-1:] if _lost_parts(stage, inspection) else parts))


def _lost_parts(stage: Stage, inspection: Inspection) -> bool:
    """Return whether a stage's parts were removed when only its result was needed."""
    return inspection.record is not None and not stage.keeps_parts


def inspect_stages(work: Work, *, thorough: bool = False, repair: bool = True) -> list[StageState]:
    """Inspect every stage: whether it is done, and which parts are missing.

    Parameters
    ----------
    work : Work
        The stages and the job's folder.
    thorough : bool
        Check every byte of every result; else only presence and sizes.
    repair : bool
        Withdraw damaged results and copy results of other jobs. Otherwise nothing is changed, and
        only the presence and sizes of other jobs' results are checked.
    """
    states: dict[str, StageState] = {}
    listed = list_stages(work.store)
    # Readers first: they decide whether temporary results are needed.
    for stage in reversed(work.stages):
        readers = [reader for reader in work.readers(stage) if not states[reader.name].done]
        states[stage.name] = _inspect(work, stage, thorough, repair, readers, listed)
    return [states[stage.name] for stage in work.stages]


def inspect_stage(work: Work, stage: Stage, *, repair: bool) -> StageState:
    """Inspect one stage of a job, as :func:`inspect_stages` does for all stages."""
    listed = list_stages(work.store, stage.folder)
    return _inspect(work, stage, False, repair, _waiting_readers(work, stage), listed)


def _waiting_readers(work: Work, stage: Stage) -> list[Stage]:
    """Return the stages that read this one and aren't done."""
    return [
        reader
        for reader in work.readers(stage)
        if (reader.temporary != "result" or _waiting_readers(work, reader))
        and not is_stage_complete(work, reader)
    ]


def _inspect(
    work: Work,
    stage: Stage,
    thorough: bool,
    repair: bool,
    readers: Sequence[Stage],
    listed: Mapping[str, Mapping[str, int]],
) -> StageState:
    state = StageState(stage, work.folder(stage))
    inspection = Inspection(
        work.store,
        state.folder,
        thorough,
        state.problems,
        repair,
        listed=listed.get(state.folder, {}),
    )
    unneeded = stage.temporary == "result" and not readers
    passing = any(stage.name in reader.reads_passing for reader in readers)
    if unneeded and inspection.record is not None:
        return _collected(state, "already done")
    whole = inspection.has(f"{state.folder}/result")
    if unneeded and not whole:
        return _inspect_unneeded(work, state, repair)
    removed = inspection.record is not None and bool(readers)
    gone = removed and not has_result(work, stage, passing=passing)
    again = gone and not state.problems
    if again or (inspection.record is not None and not whole):
        inspection = _forget_collection(work.store, state, thorough=thorough, repair=repair)
        whole = inspection.has(f"{state.folder}/result")
        if again:  # what is missing isn't damaged
            state.problems.clear()
            reader = next((r for r in readers if stage.name in r.reads_passing), readers[0])
            state.origin = f"computed: stage {reader.name} is computed again"
    read = passing or (bool(readers) and stage.temporary == "arrays")
    cache = None if whole else reuse_result(work, stage, copy=repair, all_arrays=read)
    if cache is not None:
        state.problems.clear()
        if not repair:
            state.done, state.found = True, stage.partitions
            state.origin = f"reused from {cache}"
            return state
        inspection = Inspection(work.store, state.folder, False, state.problems, repair)
        whole = inspection.has(f"{state.folder}/result")
    _inspect_own(state, inspection, whole)
    reused = _take_parts(work, state, repair)
    if cache is not None:
        state.origin = f"reused from {cache}"
    elif reused:
        state.origin = f"resumed: {reused} of {stage.partitions} parts reused from other jobs"
    elif state.done or not state.origin:
        state.origin = _origin(work, state, listed)
    state.collected = state.done and inspection.record is not None and not has_result(work, stage)
    return state


def _forget_collection(
    store: ObjectStore, state: StageState, *, thorough: bool = False, repair: bool = True
) -> Inspection:
    """Inspect a stage as if nothing had been collected: removed results count as missing."""
    if repair:
        withdraw(store, f"{state.folder}/{COLLECTED}")
    return Inspection(store, state.folder, thorough, state.problems, repair, collected=False)


def _inspect_unneeded(work: Work, state: StageState, repair: bool) -> StageState:
    """Record that a temporary result was removed and that no stage needs it."""
    cache = reuse_record(work, state.stage, copy=repair)
    if cache is not None:
        return _collected(state, f"reused from {cache}")
    if repair:
        record_collected(work.store, state.folder, NOTHING_SPENT)
    return _collected(state, "not needed: the stages that read it are done")


def _collected(state: StageState, origin: str) -> StageState:
    state.problems.clear()
    state.done = state.collected = True
    state.found, state.origin = state.stage.partitions, origin
    return state


def _take_parts(work: Work, state: StageState, repair: bool) -> int:
    """Reuse missing parts that other jobs have; return their number."""
    reused = set(reuse_parts(work, state.stage, tuple(state.waiting), copy=repair))
    missing = [index for index in state.waiting if index not in reused]
    state.waiting.clear()
    state.waiting.extend(missing)
    state.found += len(reused)
    if reused and not state.waiting:
        state.waiting.append(FINALISE)
    return len(reused)


def _inspect_own(state: StageState, inspection: Inspection, whole: bool) -> None:
    """Find the missing parts of a stage, or of its current iteration."""
    stage = state.stage
    if stage.advance is not None:
        state.done = whole
        state.found = stage.partitions if whole else 0
        if not whole:
            state.iteration, missing = find_iteration(inspection, stage)
            if state.iteration:
                state.found = stage.partitions - len(missing)
            state.waiting.extend(missing or [FINALISE])
        return
    parts = [part_key(state.folder, stage, index) for index in range(stage.partitions)]
    gone = whole and _lost_parts(stage, inspection)
    # The only part of a stage may be its result, which has been inspected already.
    looked_at = [] if gone else [part for part in parts if not part.endswith("/result")]
    found_parts = dict(zip(looked_at, inspection.have(looked_at), strict=True))
    there = [gone or found_parts.get(part, whole) for part in parts]
    missing = [index for index, found in enumerate(there) if not found]
    state.found = stage.partitions - len(missing)
    state.finalised = whole
    state.done = whole and not missing
    state.waiting.extend(missing)
    if not missing and not whole:
        state.waiting.append(FINALISE)


def _origin(work: Work, state: StageState, listed: Iterable[str]) -> str:
    stage = state.stage
    if state.done:
        return "already done"
    if state.iteration:
        return (
            f"resumed in round {state.iteration}: "
            f"{state.found} of {stage.partitions} parts were there"
        )
    if state.found:
        return f"resumed: {state.found} of {stage.partitions} parts were there"
    if state.problems:
        return "computed"
    for earlier in work.earlier(stage.name):
        code = {**earlier.code, **work.code}
        changed = changes(earlier.dependencies, work.dependencies[stage.name], code)
        if changed:
            return f"computed: {changed} changed since {earlier.when}"
    if any(folder.startswith(f"{stage.folder}/") for folder in listed):
        return "computed: configuration, input or code differ from an earlier run"
    return "computed"


def make_task(work: Work, state: StageState, index: int, attempt: str) -> Task:
    """Make the task for one part of a stage in its current iteration."""
    stage = state.stage
    return Task(
        store=work.store,
        stage=stage,
        index=index,
        folders={name: f"stages/{name}/{work.keys[name]}" for name in (stage.name, *stage.needs)},
        corpora={role: work.corpora[role] for role in stage.corpora},
        attempt=attempt,
        iteration=state.iteration,
        place=[stage.name for stage in work.stages].index(state.stage.name),
    )


def find_owner(states: Sequence[StageState], problem: CorruptResult) -> StageState | None:
    """Return the stage that a damaged result belongs to."""
    return next((s for s in states if problem.part.startswith(f"{s.folder}/")), None)


def invalidate(
    store: ObjectStore, states: Sequence[StageState], owner: StageState, problem: CorruptResult
) -> None:
    """Withdraw a damaged result of a stage, so that it is recomputed.

    Temporary results that this needs and that were removed are recomputed as well.
    """
    withdraw(store, problem.part)
    owner.problems[problem.part] = problem.problem
    owner.done = False
    _restore_needs(store, {state.stage.name: state for state in states}, owner)
    collected = Inspection(store, owner.folder).record is not None
    if collected and problem.part == f"{owner.folder}/result":
        # The results that it was made from may have been removed.
        _inspect_again(store, owner)
        return
    if owner.stage.advance is not None:
        owner.damaged = True
        if not owner.running:
            return_to_iteration(store, owner)
        return
    name = problem.part.rpartition("/")[2]
    index = FINALISE if name == "result" else int(name.removeprefix("part-"))
    if part_key(owner.folder, owner.stage, 0) == problem.part:
        index = 0
    owner.finalised = owner.finalised and name != "result"
    if index not in owner.waiting and index not in owner.running:
        owner.waiting.append(index)


def _restore_needs(
    store: ObjectStore, states: Mapping[str, StageState], reader: StageState
) -> None:
    for name in reader.stage.needs:
        state = states.get(name)
        if state is None or not state.collected:
            continue
        problems = dict(state.problems)
        _inspect_again(store, state)
        state.problems = problems  # what is missing isn't damaged
        state.origin = f"computed: stage {reader.stage.name} is computed again"
        if not state.done:
            _restore_needs(store, states, state)


def _inspect_again(store: ObjectStore, state: StageState) -> None:
    """Find what has to be computed of a stage that was collected."""
    inspection = _forget_collection(store, state)
    state.collected = state.done = False
    state.waiting.clear()
    _inspect_own(state, inspection, inspection.has(f"{state.folder}/result"))


def return_to_iteration(store: ObjectStore, state: StageState) -> None:
    """Continue from the newest intact state, once no task of a damaged iteration is running."""
    state.damaged = False
    state.waiting.clear()
    inspection = Inspection(store, state.folder, problems=state.problems)
    _inspect_own(state, inspection, whole=False)
