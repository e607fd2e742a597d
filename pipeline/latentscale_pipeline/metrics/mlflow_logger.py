"""Log scores to MLflow: metrics for the value, bracket and sampling error of each score.

Each job is one run. The run is found by its tag, so logging a job twice has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import xxhash

from latentscale_pipeline.errors import BadInput, StoreFailed, how_to_install
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.results.model import Score

MLFLOW_MISSING = f"MLflow isn't installed; {how_to_install('mlflow')}"

JOB_TAG = "latentscale.job"
MAX_METRICS = 1000
"""Maximum number of metrics per request."""

KEY_CHARACTERS = 200
_OTHER = re.compile(r"[^A-Za-z0-9_.\- ]")


def log_to_mlflow(job: FinishedJob, tracking_uri: str, experiment: str) -> bool:
    """Log a finished job as a run; return False if it was logged before.

    Parameters
    ----------
    job : FinishedJob
        The job to log.
    tracking_uri : str
        A server's address or a folder, in MLflow's format.
    experiment : str
        Name of the experiment, which is created if absent.

    Raises
    ------
    BadInput
        If MLflow isn't installed.
    StoreFailed
        If the server can't be reached or rejects the request.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise BadInput(MLFLOW_MISSING) from None
    try:
        return _log(MlflowClient(tracking_uri=tracking_uri), job, experiment)
    except ImportError as error:  # database stores need further packages
        raise BadInput(f"MLflow: this kind of store needs {error.name}, which is missing") from None
    except MlflowException as error:
        problem = (str(error).splitlines() or ["it failed"])[0]
        raise StoreFailed(f"MLflow: {problem}") from None


def _log(client: Any, job: FinishedJob, experiment: str) -> bool:
    from mlflow.entities import Metric, RunStatus

    found = client.get_experiment_by_name(experiment)
    place = found.experiment_id if found else client.create_experiment(experiment)
    known = client.search_runs([place], f"tags.`{JOB_TAG}` = '{job.id}'", max_results=1)
    moment = _milliseconds(job.finished)
    if known and known[0].info.status == RunStatus.to_string(RunStatus.FINISHED):
        return False
    # An unfinished run was left by an interrupted call: continue it.
    run = known[0] if known else _new_run(client, place, job, moment)
    logged = run.data.metrics
    metrics = [Metric(key, number, moment, 0) for key, number in _metrics(job) if key not in logged]
    for first in range(0, len(metrics), MAX_METRICS):
        client.log_batch(run.info.run_id, metrics=metrics[first : first + MAX_METRICS])
    client.set_terminated(run.info.run_id, end_time=moment)
    return True


def _new_run(client: Any, place: str, job: FinishedJob, moment: int) -> Any:
    tags = {JOB_TAG: job.id, "latentscale.url": job.url, "latentscale.version": job.version}
    return client.create_run(place, run_name=job.id, tags=tags, start_time=moment)


def _metrics(job: FinishedJob) -> Iterator[tuple[str, float]]:
    for score in job.scores:
        for end in ("value", "lower", "upper", "sampling_error"):
            number = getattr(score, end)
            if number is not None and score.value is not None:
                yield f"{metric_key(score)}/{end}", number


def metric_key(score: Score) -> str:
    """Return a score's name in the characters that MLflow allows: ``vendi/cosine/order 1/corpus``.

    The parts are levels, as in MLflow's folders; the ends of the bracket are one level below. A
    name that had to be changed or cut ends with a hash of the full name, so it stays unique.
    """
    words = (
        *(score.measure, score.score if score.score != score.measure else None, score.kernel),
        f"order {score.order}" if score.order is not None else None,
        f"scale {score.scale:.6g}" if score.scale is not None else None,
        f"label {score.label}" if score.label is not None else None,
        score.of,
    )
    named = [word for word in words if word]
    key = "/".join(_OTHER.sub("_", word) for word in named)
    if key == "/".join(named) and len(key) <= KEY_CHARACTERS:
        return key
    mark = xxhash.xxh3_64_hexdigest("\0".join(named).encode())[:8]
    return f"{key[: KEY_CHARACTERS - len(mark) - 1]} {mark}"


def _milliseconds(finished: str) -> int:
    return int(1000 * datetime.fromisoformat(finished).timestamp()) if finished else 0
