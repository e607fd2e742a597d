"""The nightly evaluation as an Airflow DAG: put this file into Airflow's folder of DAGs.

Needs Airflow 3.2 or later. One run is allowed at a time, at 02:00 UTC or according to NIGHTLY_CRON;
what was missed isn't caught up on. The task ``gates`` fails if a gate fails, and the evaluation
still succeeds. An incomplete run (exit 3) is tried again, which resumes it. NIGHTLY_FOLDER is the
folder that has ``workflows/`` and ``data/``; the worker's own by default.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

FAILED, INCOMPLETE = 1, 3


@task(retries=2, retry_delay=timedelta(minutes=1))
def evaluate() -> dict[str, Any]:
    """Run one evaluation in a separate process, which frees its memory at the end."""
    given = get_current_context()["params"]
    options = [word for override in given["overrides"] for word in ("-o", override)]
    command = [sys.executable, "-m", "latentscale_pipeline.cli", "workflow", "run"]
    ended = subprocess.run(  # noqa: S603 -- a list of words, and no shell
        [*command, given["workflow"], "--quiet", "--json", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=os.environ.get("NIGHTLY_FOLDER"),
    )
    said = ended.stderr.strip()
    if ended.returncode == INCOMPLETE:
        raise AirflowException(said)
    if ended.returncode not in (0, FAILED) or not ended.stdout:
        raise AirflowFailException(said)  # another try would end the same way
    found = json.loads(ended.stdout)
    if found.get("stepped_aside"):
        raise AirflowSkipException(said)  # another run of this workflow is under way
    shown = {key: found[key] for key in ("text", "job", "folder", "comparison") if found.get(key)}
    return {**shown, "passed": ended.returncode == 0, "said": said}


@task(retries=0)
def gates(evaluation: dict[str, Any]) -> None:
    """Fail if a gate failed, with what it says."""
    if not evaluation["passed"]:
        raise AirflowFailException(evaluation["said"])


@dag(
    dag_id="latentscale_nightly",
    schedule=os.environ.get("NIGHTLY_CRON", "0 2 * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params={
        "workflow": Param("workflows/nightly.yaml", type="string", description="What to run."),
        "overrides": Param([], type="array", description="Keys that differ from it: KEY=VALUE."),
    },
)
def nightly() -> None:
    """Evaluate what the workflow file names, and check its gates."""
    gates(evaluate())


DAG = nightly()
