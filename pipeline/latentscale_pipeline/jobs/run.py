"""Run a job: lock its folder, compute the missing stages, write the results and the report."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentscale_pipeline.config.cluster import IN_THE_DRIVER, Local
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.config.job_file import format_job_file
from latentscale_pipeline.corpus import Corpus, open_corpus
from latentscale_pipeline.corpus.documents import find_damaged_document
from latentscale_pipeline.engine.collection import collect_job, has_garbage
from latentscale_pipeline.engine.executor import Executor
from latentscale_pipeline.engine.keys import code_by_digest, work_modules
from latentscale_pipeline.engine.loop import REPAIRS, Notify, repair, run_stages
from latentscale_pipeline.engine.memory import idle_memory, task_memory
from latentscale_pipeline.engine.state import StageState, inspect_stages, is_complete
from latentscale_pipeline.engine.work import Work
from latentscale_pipeline.errors import (
    BadInput,
    Cancelled,
    Incomplete,
    LatentscaleError,
    how_to_install,
)
from latentscale_pipeline.executors.threads import ThreadExecutor
from latentscale_pipeline.jobs.collect import assemble_results
from latentscale_pipeline.jobs.identity import short_name
from latentscale_pipeline.jobs.inventory import (
    INVENTORY_KEY,
    is_as_listed,
    read_inventory,
    refresh_inventory,
    write_inventory,
)
from latentscale_pipeline.jobs.other_jobs import (
    enter_in_index,
    find_earlier,
    find_part_caches,
    find_stored_results,
)
from latentscale_pipeline.jobs.plan import Plan
from latentscale_pipeline.jobs.provenance import write_provenance
from latentscale_pipeline.jobs.resources import refuse_shortfalls
from latentscale_pipeline.jobs.run_estimate import estimate_run
from latentscale_pipeline.jobs.stored_plan import (
    StoredPlan,
    planned_code,
    planned_stages,
    read_plan,
)
from latentscale_pipeline.jobs.verification import find_damage
from latentscale_pipeline.measures.finished_job import read_results
from latentscale_pipeline.report import render_report
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.storage.artifacts import CorruptResult
from latentscale_pipeline.storage.cancellation import Check, refuse_if_succeeded, stop_when_asked
from latentscale_pipeline.storage.canonical import plain
from latentscale_pipeline.storage.events import EventLog
from latentscale_pipeline.storage.lock import hold_lock, refuse_if_running, release_key
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options, strip_credentials

if TYPE_CHECKING:
    from latentscale_pipeline.executors.dask.readiness import Job

MISSING_DASHBOARD = (
    "cluster.dashboard: the dashboard needs bokeh, which isn't installed; "
    + how_to_install("dashboard")
)


@dataclass(frozen=True)
class Finished:
    """A finished job.

    Attributes
    ----------
    store : ObjectStore
        Its folder.
    results : Results
        Its results.
    computed : bool
        Whether this run wrote them.
    thorough : bool
        Whether this run read every byte of what was there; else it compared sizes.
    """

    store: ObjectStore
    results: Results
    computed: bool
    thorough: bool = False


def run_job(
    plan: Plan,
    notify: Notify,
    *,
    wait: bool = False,
    take_over: bool = False,
    verify: bool = False,
    keep: bool = False,
    performance_report: Path | None = None,
    command: Sequence[str] = (),
) -> Finished:
    """Run a job to its end; existing results are reused.

    Parameters
    ----------
    plan : Plan
        The job.
    notify : callable
        Receives every event, for progress.
    wait, take_over : bool
        If another run holds the job's lock: wait until it ends, or take the lock over even if that
        run seems alive.
    verify : bool
        Check every byte of the existing results, and recompute damaged ones.
    keep : bool
        Keep temporary results, and results under keys that the job no longer uses.
    performance_report : Path, optional
        Where to write Dask's page on the run, if it needs a cluster; bokeh has to be installed.
    command : sequence of str
        Arguments of the command line, for the provenance.

    Raises
    ------
    LatentscaleError
        If the job can't be finished; the error has a one-line message and an exit code.
    """

    def echo_waiting(line: str) -> None:
        notify("waiting", line=line)

    def finish(results: Results, *, computed: bool) -> Finished:
        if not keep:
            collect_job(work, list(results.arrays.values()))
        return Finished(store, results, computed, thorough=verify)

    def run_alone(attempt: str, check: Check) -> Finished:
        # The previous holder of the lock may have finished the job.
        previous = None if verify else _previous_results(plan, work)
        if previous is not None:
            return finish(previous, computed=False)
        with _recorded(plan, EventLog(store, attempt), notify) as emit:
            previous = _inspect_finished(plan, work, emit, thorough=verify)
            if previous is not None:
                return finish(previous, computed=False)
            states = inspect_stages(work, thorough=verify)
            _emit_estimate(plan, states, emit)
            missing = tuple(state.stage for state in states if not state.done)
            known = replace(plan, missing=missing)
            executor = _executor(known, emit, performance_report)
            results = _compute(known, work, states, attempt, emit, check, executor, command)
            return finish(results, computed=True)

    with storage_options(plan.config.storage_options):
        work = replace(work_with_caches(plan), keep=keep)
        store = work.store
        notify("run_started", job=plan.id, folder=store.url, stages=len(plan.stages))
        for corpus in plan.corpora.values():
            problem = find_damaged_document(corpus)
            if problem is not None:
                notify("corpus_damaged", problem=problem)
        previous = None if verify else _previous_results(plan, work)
        if previous is not None and (keep or not has_garbage(work, list(previous.arrays.values()))):
            return Finished(store, previous, computed=False)
        with (
            hold_lock(store, wait=wait, take_over=take_over, echo=echo_waiting) as holder,
            stop_when_asked(store, holder) as check,
        ):
            finished = run_alone(holder.attempt, check)
            # What an earlier version wrote may be damaged by now, so it isn't listed as right.
            if finished.computed or store.exists(INVENTORY_KEY):
                # Written last, because it lists the record of this run, too.
                refuse_if_succeeded(store, holder.attempt)
                write_inventory(store, [release_key(store)])
            return finished


def _emit_estimate(plan: Plan, stage_states: Sequence[StageState], notify: Notify) -> None:
    estimate = estimate_run(plan, stage_states)
    if estimate is not None:
        stages = {name: asdict(stage) for name, stage in estimate.stages.items()}
        notify("run_estimated", seconds=round(estimate.seconds, 1), work=stages)


@contextmanager
def _recorded(plan: Plan, events: EventLog, notify: Notify) -> Iterator[Notify]:
    """Record the events of a run from its beginning to its end, even if it fails."""

    def emit(event: str, **fields: Any) -> None:
        events.record(event, **fields)
        notify(event, **fields)

    events.record("run_started", job=plan.id, stages=len(plan.stages))
    try:
        yield emit
        events.record("run_ended", ending="finished")
    except BaseException as error:
        ending, problem = _ending(error)
        with contextlib.suppress(LatentscaleError):  # the store itself may have failed
            events.record("run_ended", ending=ending, error=problem)
        raise
    finally:
        with contextlib.suppress(LatentscaleError):
            events.flush()


def _ending(error: BaseException) -> tuple[str, str]:
    """Return how a run ended, as one word, and its message."""
    problem = str(error) or type(error).__name__
    if isinstance(error, Cancelled):
        return "cancelled", problem
    return ("failed" if isinstance(error, Exception) else "interrupted"), problem


def _compute(
    plan: Plan,
    work: Work,
    stage_states: list[StageState],
    attempt: str,
    notify: Notify,
    check: Check,
    executor: Callable[[], AbstractContextManager[Executor]],
    command: Sequence[str],
) -> Results:
    """Run the missing stages, and write the job's documents."""
    started = _now()
    store = work.store
    before = _read_results(store) if is_as_listed(store, "results.json") else None
    refuse_shortfalls(plan.config, stage_states)
    # Both mark a complete job, so they have to go before any stage is recomputed.
    store.remove(INVENTORY_KEY)
    store.remove("results.json")
    _prepare_workers(plan)
    _write_plan(plan)
    provenance = write_provenance(store, plan, attempt=attempt, started=started, command=command)
    repairs: Counter[str] = Counter()
    while True:
        check()
        run_stages(work, stage_states, executor, f"{attempt}-{repairs.total()}", notify, check)
        try:
            results = assemble_results(plan, work, stage_states, started=started, finished=_now())
            break
        except CorruptResult as problem:
            repairs[problem.part] += 1
            if repairs[problem.part] > REPAIRS:
                raise Incomplete(
                    f"{store.locate(problem.problem)}; check this disk, then run the same command "
                    "again"
                ) from problem
            if repair(store, stage_states, problem, notify) is None:
                raise
    if before is not None and before.scores == results.scores:
        # What was damaged is there again. The job keeps its place among others.
        times = {"started": before.job.started, "finished": before.job.finished}
        results = results.model_copy(update={"job": results.job.model_copy(update=times)})
    page = render_report(results, provenance).encode()
    refuse_if_succeeded(store, attempt)
    store.write_checked("report.html", page)
    # Its presence means that all numbers are there.
    store.write_checked("results.json", results.dump())
    store.collect_partial()
    return results


def _prepare_workers(plan: Plan) -> None:
    """Let processes on this machine import what tasks need while the driver prepares the run."""
    if isinstance(plan.cluster, Local):
        from latentscale_pipeline.executors.dask.fork_server import start_fork_server

        start_fork_server(work_modules(plan.stages))


def _executor(
    plan: Plan, notify: Notify, performance_report: Path | None
) -> Callable[[], AbstractContextManager[Executor]]:
    cluster = plan.cluster
    if isinstance(cluster, IN_THE_DRIVER):
        memory = task_memory(cluster.memory_limit, idle_memory(plan.stages))
        return partial(ThreadExecutor, cluster.threads, memory)

    @contextmanager
    def start() -> Iterator[Executor]:
        from latentscale_pipeline.executors.dask.performance import write_performance_report
        from latentscale_pipeline.executors.open import open_cluster

        def echo(line: str) -> None:
            notify("cluster_warned", problem=line)

        with open_cluster(cluster, _described(plan), echo) as executor:
            if executor.dashboard:
                notify("dashboard_opened", link=executor.dashboard)
            elif getattr(cluster, "dashboard", False):
                notify("dashboard_missing", problem=MISSING_DASHBOARD)
            if performance_report is None:
                yield executor
                return
            with write_performance_report(executor.client, performance_report, echo):
                yield executor

    return start


def _described(plan: Plan) -> Job:
    """Return the description of a job that a cluster needs."""
    from latentscale_pipeline.executors.dask.readiness import Job

    store = plan.store
    documents = {"the job's folder": (store.address, "plan.json")}
    for role, corpus in plan.corpora.items():
        documents[f"the {role}"] = (corpus.address, "manifest.json")
    return Job(
        name=short_name(plan.id, store.url),
        folder=Path(store.url) if store.is_local else None,
        documents=documents,
        idle_bytes=plan.idle_bytes,
        largest_bytes=max(stage.memory_bytes for stage in plan.stages),
    )


def job_work(plan: Plan) -> Work:
    """Return the work of a job, without access to the results of other jobs."""
    return Work(
        store=plan.store,
        stages=plan.stages,
        keys=plan.keys,
        corpora={str(role): corpus for role, corpus in plan.corpora.items()},
        retries=plan.config.cluster.retries,
    )


def work_with_caches(plan: Plan) -> Work:
    """Return the work of a job, with access to the results of other jobs below the same output."""
    return replace(
        job_work(plan),
        caches=find_stored_results(plan),
        part_caches=find_part_caches(plan),
        dependencies=plan.dependencies,
        earlier=find_earlier(plan),
        code=code_by_digest(plan.stages),
    )


def is_finished(plan: Plan) -> bool:
    """Return whether a job is complete."""
    with storage_options(plan.config.storage_options):
        return _previous_results(plan, job_work(plan)) is not None


def prepare_job(plan: Plan, *, even_if_running: bool = False) -> None:
    """Write the plan and the configuration of a job to its folder, without running anything.

    Raises
    ------
    BadInput
        If the job is running: the files that the run reads must not change.
    """
    if not even_if_running:
        refuse_if_running(plan.store)
    _write_plan(plan)
    refresh_inventory(plan.store, ("plan.json", "config.json", "config.yaml"))


def _write_plan(plan: Plan) -> None:
    """Write the documents needed to resume a job, and add its stages to the index."""
    store = plan.store
    store.write_checked("plan.json", _describe(plan, read_plan(store)))
    frozen = frozen_config(plan.config)
    store.write_checked("config.json", frozen)
    places = {
        key: ObjectStore(url).url
        for key in ("corpus", "reference", "output", "scales_from")
        if (url := getattr(plan.config, key)) not in {None, "auto", *plan.corpora}
    }
    job_file = format_job_file(plan.config, {**json.loads(frozen), **places})
    store.write_checked("config.yaml", job_file.encode())
    enter_in_index(plan)


def _describe(plan: Plan, previous: StoredPlan) -> bytes:
    """Return the plan to store; it keeps the earlier dependencies of stages whose keys changed."""
    description = plan.describe()
    stored = planned_stages(previous)
    code, known = code_by_digest(plan.stages), planned_code(previous)
    for stage in description["stages"]:
        last = stored.get(stage["stage"], {})
        before = last.get("before" if last.get("key") == stage["key"] else "depends_on")
        if isinstance(before, dict):
            stage["before"] = before
            if before.get("code") in known:
                code[before["code"]] = dict(known[before["code"]])
    return (json.dumps({**description, "code": code}, indent=1) + "\n").encode()


def _inspect_finished(plan: Plan, work: Work, emit: Notify, *, thorough: bool) -> Results | None:
    """Tell what a finished job lacks; return its results if every byte of them is right."""
    damage = find_damage(work.store, thorough=thorough)
    for problem in damage:
        emit("file_damaged", problem=problem)
    # Without an inventory nobody knows what results.json should be, so it is written anew.
    listed = thorough and not damage and read_inventory(work.store) is not None
    return _previous_results(plan, work) if listed else None


def _previous_results(plan: Plan, work: Work) -> Results | None:
    """Return the results of an earlier run if nothing is missing, else None; change nothing."""
    store = work.store
    if find_damage(store, thorough=False):
        return None
    results = _read_results(store)
    if results is None:
        return None
    job = results.job
    known = job.config_hash == plan.config_hash and job.name == plan.config.name
    # Of a corpus that was moved the results have to say the new place.
    known = known and not any(
        _was_moved(found.uri, plan.corpora[role])
        for role, found in results.corpora.by_role().items()
    )
    return results if known and store.exists("report.html") and is_complete(work) else None


def _was_moved(before: str | None, corpus: Corpus) -> bool:
    """Return whether a corpus isn't where results say; other machines' stores aren't asked."""
    if before is None or before == strip_credentials(corpus.url):
        return False
    if not ObjectStore(before).is_local:
        return True
    try:
        there = open_corpus(before)
        there = there.without(corpus.excluded) if corpus.excluded else there
        return there.fingerprint != corpus.fingerprint
    except (BadInput, Incomplete):
        return True


def _read_results(store: ObjectStore) -> Results | None:
    """Return the results that are there; None without them, or if they can't be read."""
    try:
        return read_results(json.loads(store.read("results.json")), "results.json")
    except (FileNotFoundError, ValueError, BadInput):
        return None


def frozen_config(config: JobConfig) -> bytes:
    """Return the complete configuration as it is stored with the job, without credentials.

    Storage options are left out: any of them may be a credential, depending on the storage library.
    """
    frozen = {
        **config.model_dump(mode="json", exclude={"measures", "storage_options"}),
        "measures": {
            name: section.model_dump(mode="json") for name, section in config.measures.items()
        },
    }
    for role in ("corpus", "reference", "output", "scales_from"):
        if frozen[role] is not None:
            frozen[role] = strip_credentials(frozen[role])
    return (json.dumps(plain(frozen), indent=1, allow_nan=False) + "\n").encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
