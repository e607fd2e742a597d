"""The nightly evaluation as a Dagster asset: dagster dev -f workflows/nightly_dagster.py.

Needs the package ``dagster``. The asset's check says whether the gates passed. The schedule starts
at 02:00 UTC, or according to NIGHTLY_CRON. An incomplete run (exit 3) is tried again, which resumes
it.
"""

import json
import os
import subprocess
import sys

from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    Config,
    Definitions,
    Failure,
    MaterializeResult,
    RetryRequested,
    ScheduleDefinition,
    asset,
    define_asset_job,
)

FAILED, INCOMPLETE = 1, 3


class Evaluation(Config):
    """What to run: a workflow file, and keys that differ from it."""

    workflow: str = "workflows/nightly.yaml"
    overrides: list[str] = []  # noqa: RUF012 -- Dagster reads defaults from the class


@asset(check_specs=[AssetCheckSpec("gates", asset="nightly_evaluation")])
def nightly_evaluation(config: Evaluation) -> MaterializeResult:
    """Run one evaluation in a separate process, which frees its memory at the end."""
    options = [word for override in config.overrides for word in ("-o", override)]
    command = [sys.executable, "-m", "latentscale_pipeline.cli", "workflow", "run", config.workflow]
    ended = subprocess.run(  # noqa: S603 -- a list of words, and no shell
        [*command, "--quiet", "--json", *options], capture_output=True, text=True, check=False
    )
    said = ended.stderr.strip()
    if ended.returncode == INCOMPLETE:
        raise RetryRequested(max_retries=2, seconds_to_wait=60) from Failure(said)
    if ended.returncode not in (0, FAILED) or not ended.stdout:
        raise Failure(said)
    found = json.loads(ended.stdout)
    shown = {key: found[key] for key in ("text", "job", "folder", "comparison") if found.get(key)}
    passed = ended.returncode == 0 and not found.get("stepped_aside")
    return MaterializeResult(
        metadata=shown,
        check_results=[
            AssetCheckResult(check_name="gates", passed=passed, metadata={"said": said})
        ],
    )


nightly = define_asset_job("nightly", [nightly_evaluation])
definitions = Definitions(
    assets=[nightly_evaluation],
    jobs=[nightly],
    schedules=[
        ScheduleDefinition(job=nightly, cron_schedule=os.environ.get("NIGHTLY_CRON", "0 2 * * *"))
    ],
)
