"""Run a job: lock its folder, compute what is missing, write results and report."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentscale_pipeline.addresses import storage_options, strip_credentials
from latentscale_pipeline.engine.executor import Executor, SerialExecutor
from latentscale_pipeline.engine.run import (
    REPAIRS,
    Earlier,
    Notify,
    Standing,
    Work,
    foresee,
    is_complete,
    redo,
    run_stages,
    survey,
)
from latentscale_pipeline.errors import Cancelled, Incomplete, LatentscaleError
from latentscale_pipeline.job.config import JobConfig, Serial
from latentscale_pipeline.job.events import EventLog
from latentscale_pipeline.job.identity import plain, short_name
from latentscale_pipeline.job.lock import hold_lock, refuse_if_running
from latentscale_pipeline.job.publishing import CorruptResult
from latentscale_pipeline.job.stopping import Check, stop_when_asked
from latentscale_pipeline.job.verification import check_documents
from latentscale_pipeline.objects import ObjectStore
from latentscale_pipeline.plan import Plan
from latentscale_pipeline.provenance import write_provenance
from latentscale_pipeline.report import render_report
from latentscale_pipeline.results import assemble_results, dump_results
from latentscale_pipeline.stages import MEASURES
from latentscale_pipeline.stages.measure import Measure

if TYPE_CHECKING:
    from latentscale_pipeline.clusters.opening import Job

STAGE_KEY = re.compile("[0-9a-f]{16}")

MISSING_DASHBOARD = (
    "cluster.dashboard: the dashboard needs bokeh, which isn't installed; pip install bokeh"
)


@dataclass(frozen=True)
class Finished:
    """A finished job: its folder, its results, and whether anything had to be computed."""

    store: ObjectStore
    results: Mapping[str, Any]
    computed: bool


def run_job(
    plan: Plan,
    notify: Notify,
    *,
    wait: bool = False,
    take_over: bool = False,
    verify: bool = False,
    measures: Mapping[str, Measure] = MEASURES,
    command: Sequence[str] = (),
) -> Finished:
    """Bring a job to its end; what is there already isn't computed again.

    Parameters
    ----------
    plan : Plan
        The job.
    notify : callable
        Told of every event, for progress.
    wait, take_over : bool
        What to do when another run holds the job's folder.
    verify : bool
        Check every byte of what is there already, and compute again what is damaged.
    measures : mapping
        The measures by name.
    command : sequence of str
        Arguments of the command line that asked for this, for the provenance.

    Raises
    ------
    LatentscaleError
        With one line and an exit code.
    """
    with storage_options(plan.config.storage_options):
        return _run(plan, notify, wait, take_over, verify, measures, command)


def _run(
    plan: Plan,
    notify: Notify,
    wait: bool,
    take_over: bool,
    verify: bool,
    measures: Mapping[str, Measure],
    command: Sequence[str],
) -> Finished:
    work = _work(plan)
    store = work.store
    notify("run_started", job=plan.id, folder=store.url, stages=len(plan.stages))
    previous = None if verify else _previous_results(plan, work)
    if previous is not None:
        return Finished(store, previous, computed=False)

    def tell_waiting(line: str) -> None:
        notify("waiting", line=line)

    with (
        hold_lock(store, wait=wait, take_over=take_over, tell=tell_waiting) as holder,
        stop_when_asked(store, holder) as check,
    ):
        # Whoever held the job until now may have finished it.
        previous = None if verify else _previous_results(plan, work)
        if previous is not None:
            return Finished(store, previous, computed=False)
        with _recorded(plan, EventLog(store, holder.attempt), notify) as tell:
            return _run_locked(plan, work, holder.attempt, tell, check, verify, measures, command)


@contextmanager
def _recorded(plan: Plan, events: EventLog, notify: Notify) -> Iterator[Notify]:
    """Record what a run tells, from its beginning to its end, however that comes."""

    def tell(event: str, **fields: Any) -> None:
        events.record(event, **fields)
        notify(event, **fields)

    events.record("run_started", job=plan.id, stages=len(plan.stages))
    try:
        yield tell
        events.record("run_ended", ending="finished")
    except BaseException as error:
        ending, problem = _ending(error)
        with contextlib.suppress(LatentscaleError):  # perhaps the store is what failed
            events.record("run_ended", ending=ending, error=problem)
        raise
    finally:
        with contextlib.suppress(LatentscaleError):
            events.flush()


def _ending(error: BaseException) -> tuple[str, str]:
    """Return how a run ended, in one word, and what it said."""
    problem = str(error) or type(error).__name__
    if isinstance(error, Cancelled):
        return "cancelled", problem
    return ("failed" if isinstance(error, Exception) else "interrupted"), problem


def _run_locked(
    plan: Plan,
    work: Work,
    attempt: str,
    notify: Notify,
    check: Check,
    verify: bool,
    measures: Mapping[str, Measure],
    command: Sequence[str],
) -> Finished:
    started = _now()
    store = work.store
    plans = _earlier_plans(plan)
    work = _with_earlier(plan, work, plans)
    standings = survey(work, thorough=verify)
    if verify and not check_documents(store, finished=True):
        previous = _previous_results(plan, work)
        if previous is not None:
            return Finished(store, previous, computed=False)
    # Results say that everything is there: they can't stand beside what is about to be redone.
    store.remove("results.json")
    store.write_checked("plan.json", _describe(plan, plans.get(plan.id, {})))
    store.write_checked("config.json", frozen_config(plan.config))
    provenance = write_provenance(store, plan, attempt=attempt, started=started, command=command)
    results = _compute(plan, work, standings, attempt, notify, check, started, measures)
    store.write_checked("report.html", render_report(results, provenance).encode())
    # Last: its presence says that everything else is there.
    store.write_checked("results.json", dump_results(results))
    store.sweep_partial()
    return Finished(store, results, computed=True)


def _compute(
    plan: Plan,
    work: Work,
    standings: list[Standing],
    attempt: str,
    notify: Notify,
    check: Check,
    started: str,
    measures: Mapping[str, Measure],
) -> dict[str, Any]:
    """Run the stages and collect their results, redoing what turns out to be damaged."""
    repairs: Counter[str] = Counter()
    while True:
        check()
        executor = _executor(plan, notify)
        run_stages(work, standings, executor, f"{attempt}-{repairs.total()}", notify, check)
        try:
            return assemble_results(
                plan, work, standings, started=started, finished=_now(), measures=measures
            )
        except CorruptResult as problem:
            repairs[problem.part] += 1
            if repairs[problem.part] > REPAIRS:
                raise Incomplete(
                    f"{work.store.locate(problem.problem)}; check this disk, then run the same "
                    "command again"
                ) from problem
            owner = next(s for s in standings if problem.part.startswith(f"{s.folder}/"))
            redo(work.store, owner, problem)
            notify("part_corrupt", stage=owner.stage.name, problem=owner.part_reason(problem.part))


def _executor(plan: Plan, notify: Notify) -> Callable[[], AbstractContextManager[Executor]]:
    cluster = plan.config.cluster
    if isinstance(cluster, Serial):
        return SerialExecutor

    @contextmanager
    def start() -> Iterator[Executor]:
        from latentscale_pipeline.clusters.opening import open_cluster

        def tell(line: str) -> None:
            notify("cluster_warned", problem=line)

        with open_cluster(cluster, _described(plan), tell) as executor:
            if executor.dashboard:
                notify("dashboard_opened", link=executor.dashboard)
            elif getattr(cluster, "dashboard", False):
                notify("dashboard_missing", problem=MISSING_DASHBOARD)
            yield executor

    return start


def _described(plan: Plan) -> Job:
    """Say what a cluster has to know of a job."""
    from latentscale_pipeline.clusters.opening import Job
    from latentscale_pipeline.clusters.readiness import Needs

    store = _work(plan).store
    documents = {"the job's folder": (store.address, "plan.json")}
    for role, corpus in plan.corpora.items():
        documents[f"the {role}"] = (corpus.address, "manifest.json")
    largest = max(stage.memory_bytes for stage in plan.stages)
    return Job(
        name=short_name(plan.id, store.url),
        folder=Path(store.url) if store.is_local else None,
        needs=Needs(documents, plan.idle_bytes, largest),
    )


def job_work(plan: Plan) -> Work:
    """Return what a run of a job works on; it knows nothing of other jobs."""
    return _work(plan)


def borrowing_work(plan: Plan) -> Work:
    """Return the same with what other jobs below the same output have."""
    return _with_earlier(plan, _work(plan), _earlier_plans(plan))


def is_finished(plan: Plan) -> bool:
    """Tell whether nothing at all of a job is missing."""
    with storage_options(plan.config.storage_options):
        return _previous_results(plan, _work(plan)) is not None


def prepare_job(plan: Plan, *, even_if_running: bool = False) -> ObjectStore:
    """Write a job's folder without running anything: its plan and configuration.

    Raises
    ------
    BadInput
        If a run of it lives: what that one goes by mustn't change.
    """
    store = _work(plan).store
    if not even_if_running:
        refuse_if_running(store)
    store.write_checked("plan.json", _describe(plan, _earlier_plans(plan).get(plan.id, {})))
    store.write_checked("config.json", frozen_config(plan.config))
    return store


def foresee_run(plan: Plan) -> list[Standing]:
    """Tell where every stage of a job stands, and why; nothing is changed."""
    return foresee(borrowing_work(plan))


def _work(plan: Plan) -> Work:
    return Work(
        store=ObjectStore(plan.config.output).child(plan.id),
        stages=plan.stages,
        keys=plan.keys,
        corpora={str(role): corpus for role, corpus in plan.corpora.items()},
        retries=plan.config.cluster.retries,
    )


def _with_earlier(plan: Plan, work: Work, plans: Mapping[str, StoredPlan]) -> Work:
    return replace(
        work,
        lenders=_lenders(plan, plans),
        part_lenders=_part_lenders(plan, plans),
        dependences=plan.dependences,
        earlier=_earlier(plan, plans),
    )


StoredPlan = Mapping[str, Mapping[str, Any]]
"""The stages of a plan that was stored with a job, by name."""


def _earlier_plans(plan: Plan) -> dict[str, StoredPlan]:
    """Read the plans of all jobs below the same output, this one's included."""
    output = ObjectStore(plan.config.output)
    plans: dict[str, StoredPlan] = {}
    for name in output.folders():
        try:
            stages = json.loads(output.read(f"{name}/plan.json"))["stages"]
            plans[name] = {str(stage["stage"]): stage for stage in stages if "key" in stage}
        except (OSError, LatentscaleError, ValueError, KeyError, TypeError):
            continue  # not a job, or none of ours to read
    return plans


def _lenders(plan: Plan, plans: Mapping[str, StoredPlan]) -> dict[str, list[ObjectStore]]:
    """Find the other jobs that planned stages with our keys."""
    output = ObjectStore(plan.config.output)
    lenders: dict[str, list[ObjectStore]] = {}
    for name, stages in plans.items():
        keys = {str(stage["key"]) for stage in stages.values()} if name != plan.id else set()
        for key in keys & set(plan.keys.values()):
            lenders.setdefault(key, []).append(output.child(name))
    return lenders


def _part_lenders(
    plan: Plan, plans: Mapping[str, StoredPlan]
) -> dict[str, list[tuple[ObjectStore, str]]]:
    """Find the parts of other jobs that planned parts with our keys."""
    wanted = {key for stage in plan.stages for key in stage.part_keys}
    names = {stage.name for stage in plan.stages if stage.part_inputs}
    output = ObjectStore(plan.config.output)
    lenders: dict[str, list[tuple[ObjectStore, str]]] = {}
    for name, stages in plans.items() if wanted else ():
        for stage in stages.values() if name != plan.id else ():
            # A plan from elsewhere must not lead out of its job.
            if stage["stage"] not in names or not STAGE_KEY.fullmatch(str(stage["key"])):
                continue
            folder = f"stages/{stage['stage']}/{stage['key']}"
            for index, key in enumerate(stage.get("part_keys", ())):
                if key in wanted:
                    part = f"{folder}/part-{index:05d}"
                    lenders.setdefault(key, []).append((output.child(name), part))
    return lenders


def _earlier(plan: Plan, plans: Mapping[str, StoredPlan]) -> dict[str, list[Earlier]]:
    """Find what our stages depended on before: in this job, then in jobs of the same name."""
    named = plan.id.rpartition("-")[0]
    others = [name for name in plans if name.rpartition("-")[0] == named and name != plan.id]
    earlier: dict[str, list[Earlier]] = {}
    for job in [plan.id, *others]:
        when = "the last run" if job == plan.id else job
        for name, stage in plans.get(job, {}).items():
            same = stage["key"] == plan.keys.get(name)
            dependences = stage.get("before" if same and job == plan.id else "depends_on")
            if isinstance(dependences, dict):
                earlier.setdefault(name, []).append(Earlier(when, dependences))
    return earlier


def _describe(plan: Plan, previous: StoredPlan) -> bytes:
    """Return the plan as it is stored, with what its stages depended on when their keys changed."""
    description = plan.describe()
    for stage in description["stages"]:
        last = previous.get(stage["stage"], {})
        before = last.get("before" if last.get("key") == stage["key"] else "depends_on")
        if before is not None:
            stage["before"] = before
    return (json.dumps(description, indent=1) + "\n").encode()


def _previous_results(plan: Plan, work: Work) -> dict[str, Any] | None:
    """Return the results of an earlier run when nothing at all is missing; change nothing."""
    store = work.store
    try:
        results: dict[str, Any] = json.loads(store.read("results.json"))
        job = results["job"]
        known = job["config_hash"] == plan.config_hash and job["name"] == plan.config.name
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return results if known and store.exists("report.html") and is_complete(work) else None


def frozen_config(config: JobConfig) -> bytes:
    """Return the configuration as it is stored with the job: complete, without credentials.

    Options of storage may be credentials, and which of them are is each library's own affair: none
    is stored.
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
