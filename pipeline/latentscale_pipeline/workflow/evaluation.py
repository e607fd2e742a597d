"""Run one evaluation: ingest, job, gates, registry, notifications.

An evaluation is identified by everything that determines its verdict: the workflow, the job's
identity (and so the corpora's fingerprints), the rule that picks the baseline, and the gates. The
registry holds one entry per evaluation, written after everything else. So

* a registered evaluation isn't repeated; its verdict is returned again. Under the rule ``latest``
  that holds until a job of other rows is evaluated: the baseline may be another one since;
* an interrupted evaluation continues: the job resumes, and the baseline is picked again;
* two runs of one workflow don't overlap: the second finds the workflow's lock held and ends.

The baseline rule also fixes the scales (bandwidths, epsilon, cut-off scale): the job takes them
from its baseline, which took them from its own baseline. Scales derived anew each time would follow
a drifting corpus and hide the drift. The first job of a series has no baseline. It derives its
scales and is compared with itself, so that gates on absolute values are checked, and it becomes the
baseline of the next job. A job whose gates failed becomes ``latest`` only once it is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from latentscale_pipeline.compare.document import comparison_document, dump_document
from latentscale_pipeline.compare.gate_checks import GateResult, try_gates
from latentscale_pipeline.compare.gates import Gate, check_names
from latentscale_pipeline.compare.jobs import Comparison, compare
from latentscale_pipeline.compare.report import comparison_report, first_report
from latentscale_pipeline.compare.rows_changed import count_changes
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.engine.loop import Notify
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.history.entries import Entry, format_gates, make_entry
from latentscale_pipeline.history.registry import Registry, pick_baseline
from latentscale_pipeline.jobs.plan import Plan, make_plan, measures_of
from latentscale_pipeline.jobs.run import run_job
from latentscale_pipeline.jobs.shared_scales import find_scales
from latentscale_pipeline.jobs.sources import ingest_sources
from latentscale_pipeline.measures.finished_job import LATEST, find_job, read_job
from latentscale_pipeline.progress import Echo, silent
from latentscale_pipeline.report import FORMATS
from latentscale_pipeline.storage.canonical import digest, slug
from latentscale_pipeline.storage.lock import Held, hold_lock
from latentscale_pipeline.storage.urls import storage_options, strip_credentials
from latentscale_pipeline.workflow.config import (
    BaselineRule,
    Workflow,
    read_job_config,
    read_workflow_gates,
)
from latentscale_pipeline.workflow.notifications import (
    NotificationError,
    find_missing_addresses,
    notify,
    refuse_commands,
)


@dataclass(frozen=True)
class Outcome:
    """How an evaluation ended.

    Attributes
    ----------
    entry : Entry or None
        The registry entry; None if another run of the workflow held its lock.
    again : bool
        Whether it had been registered before.
    comparison : str
        URL of the HTML comparison with the baseline or, without one, of the job's report with its
        gates.
    no_baseline : str
        Why there is no baseline, where the entry has none.
    look : sequence of str
        Commands that list the rows behind the verdict.
    unchecked : sequence of str
        Why gates couldn't be checked. If there are any, the entry isn't registered.
    """

    entry: Entry | None
    again: bool = False
    comparison: str = ""
    no_baseline: str = ""
    look: Sequence[str] = ()
    unchecked: Sequence[str] = ()


def evaluate(
    workflow: Workflow,
    where: str,
    notify: Notify,
    echo: Echo,
    *,
    echo_ingest: Echo | None = None,
    keep: bool = False,
    allow_code: bool = False,
    command: Sequence[str] = (),
) -> Outcome:
    """Run one evaluation of a workflow to its end.

    Parameters
    ----------
    workflow : Workflow
        The workflow.
    where : str
        Its file; the files of its job and gates are relative to it.
    notify : callable
        Receives every event of the job, for progress.
    echo : callable
        Receives progress messages, each one line.
    echo_ingest : callable, optional
        Receives what is to be said of sources before they are ingested.
    keep : bool
        Keep temporary results of the job.
    allow_code : bool
        Whether functions and commands that the workflow names may be run.
    command : sequence of str
        Arguments of the command line, for the provenance.

    Raises
    ------
    LatentscaleError
        If the evaluation fails; the error has a one-line message and an exit code.
    """
    refuse_commands(workflow.notify, allowed=allow_code)
    for problem in find_missing_addresses(workflow.notify):
        echo(problem)
    config = read_job_config(workflow, where)
    gates = read_workflow_gates(workflow, where)
    with storage_options(config.storage_options):
        registry = Registry.at(workflow.history)
        place = registry.store.child(f"workflows/{slug(workflow.name)}")
        try:
            with hold_lock(place):
                sources = workflow.corpora.choice.sources_of(config)
                config = ingest_sources(config, sources, silent, echo_ingest, _name_key)
                plan = make_plan(config, echo=echo_ingest, allow_code=allow_code)
                check_names(
                    gates,
                    where,
                    measured=measures_of(plan.config),
                    reference="reference" in plan.facts.corpora,
                    baseline=workflow.baseline != "none",
                )
                baseline, lost = _baseline(workflow, where, registry, plan, echo)
                key, entry = _identify(registry, workflow, plan, gates, baseline)
                page = registry.store.locate(f"evaluations/{key}/comparison.html")
                if entry is not None:
                    at = entry.registered.replace("T", " ")[:16]
                    echo(f"{entry.job} was evaluated before, on {at} UTC")
                    _notify_all(workflow, registry, entry, echo)
                    why = _why_no_baseline(workflow, registry, entry.registered)
                    look = _look_again(entry, workflow)
                    return Outcome(entry, True, page, no_baseline=why, look=look)
                if lost is not None:
                    raise lost
                why = _why_no_baseline(workflow, registry)
                if baseline is not None and workflow.scales_from == "baseline":
                    echo(f"baseline, and source of the scales: {strip_credentials(baseline)}")
                    config = config.model_copy(update={"scales_from": baseline})
                    scales = _lent_scales(config, echo)
                    plan = make_plan(config, scales=scales, allow_code=allow_code)
                finished = run_job(plan, notify, keep=keep, command=command)
                job = read_job(finished.store.url)
                usual = job if baseline is None else read_job(baseline)
                comparison = replace(
                    compare(job, usual, allow_incomparable=workflow.allow_incomparable),
                    rows=None if baseline is None else count_changes(job, usual),
                )
                earlier = registry.earlier(workflow.name, job, today=True)
                results = try_gates(gates, comparison, where, earlier)
                for result in results:
                    if result.remark:
                        echo(f"{result.gate}: {result.remark}")
                _store_comparison(registry, key, comparison, results, compares=baseline is not None)
                entry = make_entry(
                    job,
                    workflow=workflow.name,
                    evaluation=key,
                    baseline=baseline,
                    companions=_companions(plan),
                    passed=all(result.passed for result in results) if results else None,
                    failures=_messages(results, "failed", "unchecked"),
                    warnings=_messages(results, "warned"),
                    verdict=None if baseline is None else comparison.verdict,
                    scores=None if baseline is None else comparison.scores_of_job,
                )
                unchecked = [result.refusal for result in results if result.refusal]
                if not unchecked:
                    registry.add(entry)
                    # A job that is evaluated anew may have been accepted before.
                    entry = _registered(registry, key) or entry
                _notify_all(workflow, registry, entry, echo, unchecked=bool(unchecked))
                return Outcome(
                    entry,
                    comparison=page,
                    no_baseline=why,
                    look=comparison.look_commands,
                    unchecked=unchecked,
                )
        except Held as held:
            echo(f"another run of {workflow.name} is under way ({held.holder}): stepping aside")
            return Outcome(None)


def _look_again(entry: Entry, workflow: Workflow) -> Sequence[str]:
    """Return the commands of an evaluation that failed before; none if its jobs are gone."""
    if not entry.failed:
        return ()
    try:
        job, usual = read_job(entry.url), read_job(entry.baseline or entry.url)
        found = compare(job, usual, allow_incomparable=workflow.allow_incomparable)
        rows = count_changes(job, usual) if entry.baseline else None
        return replace(found, rows=rows).look_commands
    except BadInput:
        return ()


def _name_key(name: str) -> str:
    return f"corpora.{name}"


def _baseline(
    workflow: Workflow,
    where: str,
    registry: Registry,
    plan: Plan,
    echo: Echo,
) -> tuple[str | None, BadInput | None]:
    """Return the folder of the baseline that the workflow's rule picks, or why it has none to use.

    The latest job is another one than that of the same rows, or a job that is evaluated again with
    other gates would be its own baseline; and one whose folder is still there.
    """
    rule = workflow.baseline
    if isinstance(rule, BaselineRule) and rule.job is not None:
        try:
            read_job(rule.job)
            # Another job is the latest one tomorrow; a folder stays what it is.
            is_latest = rule.job.rstrip("/").endswith(LATEST)
            return find_job(rule.job).address if is_latest else rule.job, None
        except BadInput as error:
            raise BadInput(f"{where}: baseline.job: {error}") from None
    if rule == "none":
        return None, None
    if isinstance(rule, BaselineRule):
        tagged = pick_baseline(registry, str(rule.tag))
        if tagged is not None and not _is_there(tagged):
            raise BadInput(f"{where}: baseline.tag: the job of {rule.tag}, {tagged.url}, is gone")
        return None if tagged is None else tagged.url, None
    gone: list[Entry] = []

    def suits(entry: Entry) -> bool:
        if _has_rows_of(entry, plan):
            return False
        if not _is_there(entry):
            gone.append(entry)
            return False
        return True

    latest = pick_baseline(registry, rule, workflow.name, suits)
    if latest is None and gone:
        return None, BadInput(
            f"{where}: baseline: {strip_credentials(gone[0].url)} is gone, and no earlier job is "
            "there; restore it, or leave it out with latentscale history reject "
            f"{registry.store.url} {gone[0].job} --reason WHY"
        )
    for entry in gone:
        echo(f"{strip_credentials(entry.url)} is gone, so an earlier job is the baseline")
    return None if latest is None else latest.url, None


def _has_rows_of(entry: Entry, plan: Plan) -> bool:
    """Return whether a registered job has the rows of a plan, with the same labels and weights."""
    rows = plan.fingerprints["corpus"], plan.fingerprints.get("reference")
    same = entry.companions is None or entry.companions == _companions(plan)
    return same and (entry.corpus_fingerprint, entry.reference_fingerprint) == rows


def _companions(plan: Plan) -> str:
    """Return a checksum of the labels and weights of a plan's corpora."""
    corpora = plan.facts.corpora.items()
    return digest({role: [corpus.labels, corpus.weights] for role, corpus in corpora})[:16]


def _lent_scales(config: JobConfig, echo: Echo) -> dict[str, float]:
    """Return the scales that the baseline lends; those that it lacks are derived anew."""
    scales = find_scales(config)
    if lacking := [name for name, value in scales.items() if value is None]:
        echo(f"the baseline has no {' and no '.join(lacking)}, so this job derives its own")
    return {name: value for name, value in scales.items() if value is not None}


def _is_there(entry: Entry) -> bool:
    return find_job(entry.url).exists("results.json")


def _identify(
    registry: Registry,
    workflow: Workflow,
    plan: Plan,
    gates: Sequence[Gate],
    baseline: str | None,
) -> tuple[str, Entry | None]:
    """Return the key of an evaluation, and its entry if it was registered before.

    With the rule ``latest`` the baseline isn't part of the key, because every job that passes would
    change the keys of those before. So the same rows may meet another baseline: where others were
    evaluated since, or the one of then was rejected, it is part of the key, with the time of its
    own evaluation.
    """
    moving = workflow.baseline == "latest"
    key = _key(workflow, plan, gates, "latest" if moving else baseline)
    found = _registered(registry, key)
    if not moving or found is None:
        return key, found
    moved = any(
        (entry.registered > found.registered and not _has_rows_of(entry, plan))
        or (entry.rejected is not None and _stripped(entry.url) == found.baseline)
        for entry in registry.entries(workflow.name)
    )
    if not moved:
        return key, found
    address = _stripped(baseline)
    times = [e.registered for e in registry.entries(workflow.name) if e.url == address]
    key = _key(workflow, plan, gates, f"{address} of {max(times, default='')}")
    return key, _registered(registry, key)


def _registered(registry: Registry, key: str) -> Entry | None:
    return next((entry for entry in registry.entries() if entry.evaluation == key), None)


def _stripped(baseline: str | None) -> str | None:
    return None if baseline is None else strip_credentials(baseline)


def _why_no_baseline(workflow: Workflow, registry: Registry, before: str | None = None) -> str:
    """Say why there is no baseline, or was none before a time of registration."""
    if workflow.baseline == "none":
        return "none, as the workflow says"
    if any(before is None or each.registered < before for each in registry.entries(workflow.name)):
        return "none yet: no earlier job of other rows passed its gates"
    return f"none yet: this is the first in {registry.store.url}"


def _key(workflow: Workflow, plan: Plan, gates: Sequence[Gate], baseline: str | None) -> str:
    """Hash what determines an evaluation's verdict."""
    return digest(
        {
            "workflow": workflow.name,
            "job": plan.config_hash,
            "baseline": _stripped(baseline) or "",
            "scales_from": workflow.scales_from,
            "gates": [gate.fields for gate in gates],
            **({"allow_incomparable": True} if workflow.allow_incomparable else {}),
        }
    )[:16]


def _messages(results: Sequence[GateResult], *outcomes: str) -> str:
    return "\n".join(result.message for result in results if result.outcome in outcomes)


def _store_comparison(
    registry: Registry,
    key: str,
    comparison: Comparison,
    results: Sequence[GateResult],
    *,
    compares: bool,
) -> None:
    gates = results or None
    document = dump_document(comparison_document(comparison, gates))
    report = (
        comparison_report([comparison], gates) if compares else first_report(comparison.job, gates)
    )
    page = FORMATS["html"](report)
    registry.store.write(f"evaluations/{key}/comparison.json", f"{document}\n".encode())
    registry.store.write(f"evaluations/{key}/comparison.html", page.encode())


def _notify_all(
    workflow: Workflow, registry: Registry, entry: Entry, echo: Echo, *, unchecked: bool = False
) -> None:
    """Send the notifications that weren't sent yet; the next run retries those that fail.

    An evaluation of which a gate couldn't be checked is told once more when all were.
    """
    document, also = notification_document(entry), "-unchecked" * unchecked
    for place, notification in enumerate(workflow.notify):
        if notification.when == "failure" and not entry.failed:
            continue
        told = f"evaluations/{entry.evaluation}/told-{notification.key}{also}.json"
        if registry.store.exists(told):
            continue
        try:
            notify(notification, document)
        except NotificationError as problem:
            echo(f"notification {place}: {problem}; run the workflow again to retry")
            continue
        registry.store.create(told, b"{}")


def notification_document(entry: Entry) -> dict[str, Any]:
    """Return the notification of an evaluation as a JSON document."""
    said = format_gates(entry) or "has no gates"
    lines = [f"{entry.workflow}: {entry.job} {said}", *entry.failures.splitlines()]
    lines += [f"warning: {warning}" for warning in entry.warnings.splitlines()]
    return {
        "schema": "latentscale.notification/1",
        "text": "\n".join(lines),
        "workflow": entry.workflow,
        "job": entry.job,
        "folder": entry.url,
        "baseline": entry.baseline,
        "finished": entry.finished,
        "passed": entry.passed,
        "accepted": entry.accepted,
        "failures": entry.failures.splitlines(),
        "warnings": entry.warnings.splitlines(),
    }


def describe_outcome(outcome: Outcome) -> Mapping[str, Any]:
    """Return an outcome as plain JSON values."""
    if outcome.entry is None:
        return {"stepped_aside": True}
    return {
        **notification_document(outcome.entry),
        "schema": "latentscale.evaluation/1",
        "stepped_aside": False,
        "evaluation": outcome.entry.evaluation,
        "evaluated_before": outcome.again,
        "unchecked": list(outcome.unchecked),
        "comparison": outcome.comparison,
    }
