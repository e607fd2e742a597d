"""Run a job: lock its folder, compute what is missing, write results and report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from latentscale_pipeline.engine.executor import Executor, SerialExecutor
from latentscale_pipeline.engine.run import (
    ATTEMPTS,
    Notify,
    Standing,
    Work,
    run_stages,
    survey,
)
from latentscale_pipeline.errors import Incomplete, LatentscaleError
from latentscale_pipeline.job.config import JobConfig, Local
from latentscale_pipeline.job.events import EventLog
from latentscale_pipeline.job.lock import hold_lock
from latentscale_pipeline.job.publishing import CorruptResult, withdraw
from latentscale_pipeline.objects import ObjectStore, strip_credentials
from latentscale_pipeline.plan import Plan
from latentscale_pipeline.report import render_report
from latentscale_pipeline.results import assemble_results, dump_results
from latentscale_pipeline.stages import MEASURES
from latentscale_pipeline.stages.measure import Measure


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
    measures: Mapping[str, Measure] = MEASURES,
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
    measures : mapping
        The measures by name.

    Raises
    ------
    LatentscaleError
        With one line and an exit code.
    """
    store = ObjectStore(plan.config.output).child(plan.id)
    started = _now()
    with hold_lock(store, wait=wait, take_over=take_over) as holder:
        events = EventLog(store, holder.attempt)

        def tell(event: str, **fields: Any) -> None:
            events.record(event, **fields)
            notify(event, **fields)

        try:
            return _run_locked(plan, store, holder.attempt, tell, started, measures)
        except BaseException as error:
            events.record("run_ended", error=str(error) or type(error).__name__)
            raise
        finally:
            events.flush()


def _run_locked(
    plan: Plan,
    store: ObjectStore,
    attempt: str,
    notify: Notify,
    started: str,
    measures: Mapping[str, Measure],
) -> Finished:
    notify("run_started", job=plan.id, folder=store.url, stages=len(plan.stages))
    work = Work(
        store=store,
        stages=plan.stages,
        keys=plan.keys,
        corpora={str(role): corpus for role, corpus in plan.corpora.items()},
        lenders=_lenders(plan),
    )
    standings = survey(work)
    previous = _previous_results(plan, store, standings)
    if previous is not None:
        notify("run_ended", computed=False)
        return Finished(store, previous, computed=False)
    store.write("config.json", frozen_config(plan.config))
    store.write("plan.json", (json.dumps(plan.describe(), indent=1) + "\n").encode())
    results = _compute(plan, work, standings, attempt, notify, started, measures)
    store.write("report.html", render_report(results).encode())
    # Last: its presence says that everything else is there.
    store.write("results.json", dump_results(results))
    store.sweep_partial()
    notify("run_ended", computed=True)
    return Finished(store, results, computed=True)


def _compute(
    plan: Plan,
    work: Work,
    standings: list[Standing],
    attempt: str,
    notify: Notify,
    started: str,
    measures: Mapping[str, Measure],
) -> dict[str, Any]:
    """Run the stages and collect their results, redoing what turns out to be damaged."""
    problem: CorruptResult | None = None
    for repair in range(ATTEMPTS):
        run_stages(work, standings, _executor(plan.config), f"{attempt}-{repair}", notify)
        try:
            return assemble_results(
                plan, work, standings, started=started, finished=_now(), measures=measures
            )
        except CorruptResult as found:
            problem = found
            notify("part_corrupt", stage=found.part.split("/")[1], problem=str(found))
            withdraw(work.store, found.part)
            standings = survey(work)
    raise Incomplete(f"{work.store.locate(str(problem))}; check this disk, then run again")


def _executor(config: JobConfig) -> Callable[[], AbstractContextManager[Executor]]:
    cluster = config.cluster
    if isinstance(cluster, Local):

        def start() -> AbstractContextManager[Executor]:
            from latentscale_pipeline.clusters.dask_executor import local_cluster

            return local_cluster(cluster)

        return start
    return SerialExecutor


def _lenders(plan: Plan) -> dict[str, list[ObjectStore]]:
    """Find the other jobs below the same output that planned stages with our keys."""
    output = ObjectStore(plan.config.output)
    lenders: dict[str, list[ObjectStore]] = {}
    for name in output.folders():
        if name in {plan.id, "corpora"}:
            continue
        other = output.child(name)
        try:
            stages = json.loads(other.read("plan.json"))["stages"]
            keys = {str(stage["key"]) for stage in stages}
        except (OSError, LatentscaleError, ValueError, KeyError, TypeError):
            continue  # not a job, or none of ours to read
        for key in keys & set(plan.keys.values()):
            lenders.setdefault(key, []).append(other)
    return lenders


def _previous_results(
    plan: Plan, store: ObjectStore, standings: list[Standing]
) -> dict[str, Any] | None:
    """Return the results of an earlier run when nothing at all is missing."""
    if not all(standing.done for standing in standings) or not store.exists("report.html"):
        return None
    try:
        results: dict[str, Any] = json.loads(store.read("results.json"))
        known = results["job"]["config_hash"] == plan.config_hash
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return results if known and results["job"]["name"] == plan.config.name else None


def frozen_config(config: JobConfig) -> bytes:
    """Return the configuration as it is stored with the job: complete, without credentials."""
    frozen = {
        **config.model_dump(mode="json", exclude={"measures"}),
        "measures": {
            name: section.model_dump(mode="json") for name, section in config.measures.items()
        },
    }
    for role in ("corpus", "reference", "output", "scales_from"):
        if frozen[role] is not None:
            frozen[role] = strip_credentials(frozen[role])
    return (json.dumps(frozen, indent=1) + "\n").encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
