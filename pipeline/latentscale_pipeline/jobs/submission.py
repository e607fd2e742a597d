"""Submit a job's driver to a scheduler.

The driver is one process, ``latentscale resume`` on the job's folder, where it finds everything
else. For Slurm, ``sbatch`` gets the script on its standard input and the options as arguments, and
every name in the script is quoted. Credentials are passed in the environment, which Slurm forwards,
and never in a script.

The script waits for the driver and forwards signals to it. Slurm sends one a minute before the
walltime, so that the driver can stop cleanly. With ``--requeue`` the script requeues itself if the
driver ran out of time or died. The next driver resumes from the folder and takes the job's lock
over, so an earlier copy that is still running can't publish anything.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentscale_pipeline.config.cluster import (
    IN_THE_DRIVER,
    ON_THIS_MACHINE,
    Batch,
    Kubernetes,
    walltime_seconds,
)
from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.config.user_functions import refuse_code
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.ingest.create import UningestedCorpus
from latentscale_pipeline.errors import BadInput, Incomplete, LatentscaleError, first_line
from latentscale_pipeline.executors.dask.batch import import_jobqueue, worker_script
from latentscale_pipeline.executors.dask.kubernetes_objects import create_object, import_kr8s
from latentscale_pipeline.executors.dask.manifests import (
    TLS_FILES,
    dask_cluster,
    driver_job,
    tls_secret,
)
from latentscale_pipeline.jobs.identity import short_name
from latentscale_pipeline.jobs.plan import (
    Plan,
    drop_inapplicable_measures,
    identify_plan,
    job_facts,
    plan_stages,
)
from latentscale_pipeline.jobs.run import prepare_job
from latentscale_pipeline.jobs.schedulers import look_at
from latentscale_pipeline.jobs.shared_scales import read_scales
from latentscale_pipeline.jobs.sources import JobSources, find_corpora
from latentscale_pipeline.jobs.submission_records import (
    Submission,
    last_submission,
    record_submission,
)
from latentscale_pipeline.storage.lock import read_lock
from latentscale_pipeline.storage.objects import ObjectStore
from latentscale_pipeline.storage.urls import storage_options
from latentscale_pipeline.views.formatting import shorten

WARNING_SECONDS = 60
"""How long before its walltime a driver is signalled to stop."""

RESUBMISSIONS = 6
"""How many times a driver is requeued."""

OVERHEAD_BYTES = 256 << 20
"""Memory per process beyond its own limit, for the processes that supervise it."""

SUBMITTING_SECONDS = 60.0

UNKNOWN_HASH = "xxxxxxxx"
"""Stands for the hash of a job whose corpora aren't ingested yet."""

UNKNOWN_RUN = "xxxxxx"
"""Stands for the random end of the names of a run's objects."""

UNREACHABLE = ("establish a configuration source", "contact slurm controller")
"""Messages of sbatch on a machine outside any cluster, or if the controller is down."""

_SLURM_JOB = re.compile(r"([0-9]+)(?:;([A-Za-z0-9_.-]+))?")
"""What ``sbatch --parsable`` prints: an id, and with ``--clusters`` the name of the cluster."""

_SCRIPT = """#!/bin/bash
{directives}# The driver of a latentscale job. It resumes the job from its folder.
{command} &
driver=$!
leaving= stopped=
trap 'stopped=yes; kill -TERM "$driver" 2>/dev/null' TERM INT
trap 'leaving=yes; kill -TERM "$driver" 2>/dev/null' USR1
while kill -0 "$driver" 2>/dev/null; do wait "$driver"; done
wait "$driver"
code=$?
{requeue}exit "$code"
"""

_REQUEUE = f"""if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {RESUBMISSIONS} ]; then
  if [ -n "$leaving" ] || {{ [ "$code" -gt 128 ] && [ -z "$stopped" ]; }}; then
    scontrol requeue "$SLURM_JOB_ID" && sleep {WARNING_SECONDS}
  fi
fi
"""


@dataclass(frozen=True)
class SubmissionSpec:
    """What is submitted to a scheduler.

    Attributes
    ----------
    scheduler, place : str
        As in :class:`~latentscale_pipeline.jobs.submission_records.Submission`.
    command : list of str
        The command that submits it.
    text : str
        The standard input of the command: a script, or manifests.
    """

    scheduler: str
    place: str
    command: list[str]
    text: str

    def __str__(self) -> str:
        return f"{shlex.join(self.command)} <<'END'\n{self.text}END"


def plan_submission(plan: Plan, *, requeue: bool, keep: bool, allow_code: bool) -> SubmissionSpec:
    """Return exactly what would be submitted; nothing is written.

    Raises
    ------
    BadInput
        If the configuration names no scheduler that takes drivers.
    """
    config = plan.config
    kind = find_scheduler(config)
    arguments = ["resume", plan.store.url, "--here", "--wait", "--quiet"]
    arguments += ["--keep"] if keep else []
    arguments += ["--allow-code"] if allow_code else []
    return (_for_slurm if kind == "slurm" else _for_kubernetes)(plan, arguments, requeue)


def find_scheduler(config: JobConfig) -> str:
    """Return the kind of the scheduler that takes a job's driver.

    Raises
    ------
    BadInput
        If the configuration names none.
    """
    kind = config.driver.kind or config.cluster.kind
    if kind not in {"slurm", "kubernetes"}:
        raise BadInput(
            f"cluster.kind is {config.cluster.kind}, which takes no drivers; set driver.kind to "
            "slurm or kubernetes, or use latentscale run"
        )
    return kind


def check_scheduler(config: JobConfig) -> None:
    """Refuse a job that can't be submitted from here, before its sources are read.

    Raises
    ------
    BadInput
        If no scheduler takes its driver, or its command isn't installed.
    """
    if find_scheduler(config) == "slurm" and shutil.which("sbatch") is None:
        raise BadInput("sbatch isn't installed here; submit the job on a machine that has Slurm")


def plan_without_ingest(
    config: JobConfig, sources: JobSources, *, allow_code: bool
) -> tuple[Plan, list[str]]:
    """Plan a job from manifests and headers alone; nothing is ingested or written.

    ``sources`` are those of :meth:`~latentscale_pipeline.jobs.sources.SourceChoice.sources_of`.

    Returns
    -------
    Plan
        The plan. If a source isn't a corpus yet, the hash at the end of the job's name is unknown,
        and :data:`UNKNOWN_HASH` stands for it.
    list of str
        The sources that aren't corpora yet.

    Raises
    ------
    BadInput
        As :func:`~latentscale_pipeline.jobs.plan.make_plan`.
    """
    refuse_code(config.measures, allowed=allow_code)
    with storage_options(config.storage_options):
        found = find_corpora(config, sources)
        config = drop_inapplicable_measures(config, found)
        facts = job_facts(config, found, read_scales(config))
    stages = plan_stages(config, facts)
    corpora = {role: corpus for role, corpus in found.items() if isinstance(corpus, Corpus)}
    if len(corpora) == len(found):
        return identify_plan(config, corpora, facts, stages), []
    prospects = [corpus.url for corpus in found.values() if isinstance(corpus, UningestedCorpus)]
    return Plan(config, corpora, facts, stages, UNKNOWN_HASH), prospects


def preview_workers(plan: Plan) -> str:
    """Return what the driver will submit for its workers: a script, or manifests; or nothing."""
    cluster, name = plan.config.cluster, short_name(plan.id, plan.store.url)
    if isinstance(cluster, Batch):
        folder = Path(plan.store.url) if plan.store.is_local else None
        return worker_script(cluster, name, folder)
    if isinstance(cluster, Kubernetes):
        owner = dict.fromkeys(("name", "uid"), "THE DRIVER'S POD")
        files = dict.fromkeys(TLS_FILES, "MADE FOR THE RUN")
        run = f"{name}-{UNKNOWN_RUN}"
        made = tls_secret(run, name, cluster, files, owner), dask_cluster(run, name, cluster, owner)
        return "\n".join(json.dumps(manifest, indent=1) for manifest in made)
    return ""


def submit_job(plan: Plan, spec: SubmissionSpec, *, requeue: bool) -> Submission:
    """Write a job's folder and submit its driver.

    Raises
    ------
    BadInput
        If the job is running or its driver is queued, or the scheduler isn't available here.
    Incomplete
        If the scheduler doesn't accept the driver.
    """
    check_scheduler(plan.config)
    if isinstance(plan.config.cluster, Batch):
        # Fail now: the driver would fail only after it has waited in the queue.
        import_jobqueue(plan.config.cluster)
    with storage_options(plan.config.storage_options):
        store = plan.store
        ended = _refuse_second(store)
        prepare_job(plan, even_if_running=ended)
        runs = read_lock(store).generation
        if spec.scheduler == "slurm":
            if store.is_local:
                (Path(store.url) / "driver").mkdir(exist_ok=True)
            found, place = _hand_to_slurm(spec, plan.config.storage_options)
        else:
            found, place = _hand_to_kubernetes(spec), spec.place
        now = round(time.time(), 3)
        made = Submission(spec.scheduler, found, place, runs, requeue, now)
        return record_submission(store, made)


def _refuse_second(store: ObjectStore) -> bool:
    """Refuse a job whose driver is queued or running.

    Returns
    -------
    bool
        Whether the scheduler reports that the holder of the lock ended, so that there is no need to
        wait for its heartbeat. Somebody else may have resumed the job since.
    """
    submission = last_submission(store)
    look = None if submission is None else look_at(submission)
    if submission is None:
        return False
    if look is not None and look.phase == "ended":
        lock = read_lock(store)
        here = lock.holder is not None and lock.holder.is_here()
        return lock.generation <= submission.runs + 1 and not here
    if look is not None or read_lock(store).generation <= submission.runs:
        raise BadInput(
            f"{store.url}: its driver is already submitted as {submission.label}; see latentscale "
            "status, or withdraw it with latentscale cancel"
        )
    return False


def _for_slurm(plan: Plan, arguments: list[str], requeue: bool) -> SubmissionSpec:
    driver = plan.config.driver
    cpus, memory = _size(plan)
    walltime = driver.walltime and -(-walltime_seconds(driver.walltime) // 60)
    options = {
        "job-name": short_name(plan.id, plan.store.url),
        "ntasks": 1,
        "cpus-per-task": cpus,
        "mem": f"{-(-memory // 2**20)}M",
        "output": _log_pattern(plan.store),
        "open-mode": "append",
        "signal": f"B:USR1@{WARNING_SECONDS}",
        "time": walltime,
        "partition": driver.queue,
        "account": driver.account,
    }
    named = [f"--{name}={value}" for name, value in options.items() if value is not None]
    command = ["sbatch", "--parsable", *named, "--requeue" if requeue else "--no-requeue"]
    script = _SCRIPT.format(
        directives="".join(f"#SBATCH {line}\n" for line in driver.directives),
        command=shlex.join([sys.executable, "-m", "latentscale_pipeline.cli", *arguments]),
        requeue=_REQUEUE if requeue else "",
    )
    return SubmissionSpec("slurm", "", command, script)


def _size(plan: Plan) -> tuple[int, int]:
    """Return the cores and the memory in bytes that a driver needs, including its local workers."""
    cluster, memory = plan.cluster, plan.config.driver.memory_limit
    if isinstance(cluster, IN_THE_DRIVER):
        return cluster.threads, max(memory, cluster.memory_limit) + OVERHEAD_BYTES
    if isinstance(cluster, ON_THIS_MACHINE):
        each = cluster.memory_limit + OVERHEAD_BYTES
        return cluster.workers * cluster.threads, memory + cluster.workers * each
    return 1, memory


def _log_pattern(store: ObjectStore) -> str:
    """Return the file name of the driver's output, as a Slurm pattern: %j is the job id."""
    if store.is_local and "\\" not in store.url:
        return f"{store.url.replace('%', '%%')}/driver/%j.log"
    return "latentscale-%j.log"


def _hand_to_slurm(
    spec: SubmissionSpec, options: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
    """Return the id of the driver, and the cluster that has it if it isn't this machine's."""
    # fsspec reads its options from variables of these names.
    own = {f"FSSPEC_{name.upper()}": json.dumps(dict(v)) for name, v in options.items()}
    try:
        ended = subprocess.run(  # noqa: S603 -- a list of arguments, no shell
            spec.command,
            input=spec.text,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=SUBMITTING_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Incomplete(f"sbatch: {error}; run the same command again") from None
    if ended.returncode != 0:
        said = " ".join(ended.stderr.split()) or "no reason given"
        if any(words in said for words in UNREACHABLE):
            raise BadInput(f"Slurm can't be reached from here; submit on a login node ({said})")
        raise BadInput(f"sbatch rejected the driver: {said}; see driver in the configuration")
    # A wrapper of sbatch may say more than --parsable asks for.
    for line in reversed(ended.stdout.splitlines()):
        if found := _SLURM_JOB.fullmatch(line.strip()):
            return found[1], found[2] or ""
    said = shorten(" ".join(ended.stdout.split()), 200) or "nothing"
    raise Incomplete(
        f"sbatch gave no job id, but said: {said}; the driver may be queued (see squeue --me) and "
        "isn't recorded"
    )


def _for_kubernetes(plan: Plan, arguments: list[str], requeue: bool) -> SubmissionSpec:
    cluster = plan.config.cluster
    if not isinstance(cluster, Kubernetes):
        raise BadInput("driver.kind kubernetes needs cluster.kind kubernetes, which has the image")
    if plan.config.storage_options:
        raise BadInput(
            "storage_options would be stored in plain text by Kubernetes; put them "
            "into a secret, as FSSPEC_… variables, and name it in cluster.secrets"
        )
    manifest = driver_job(
        short_name(plan.id, plan.store.url),
        arguments,
        cluster,
        plan.config.driver,
        requeue=requeue,
    )
    command = ["kubectl", "create", "-f", "-"]
    return SubmissionSpec(
        "kubernetes", cluster.namespace, command, json.dumps(manifest, indent=1) + "\n"
    )


def _hand_to_kubernetes(spec: SubmissionSpec) -> str:
    library = import_kr8s("driver.kind kubernetes")
    manifest = json.loads(spec.text)
    try:
        create_object(library, manifest)
    except LatentscaleError:
        raise
    except Exception as error:
        reason = first_line(error)
        raise Incomplete(f"Kubernetes rejected the driver: {reason}") from error
    return str(manifest["metadata"]["name"])
