"""The environment of worker processes, wherever they are started."""

from __future__ import annotations

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    # Freed arrays go back to the system at once, so that what a task holds is what it needs.
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""One thread inside a task: what a task computes must not depend on how many run beside it."""

TCP_SECONDS = "20s"
"""After how long a connection that carries nothing is given up."""


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker that isn't started by a nanny of ours."""
    return WORKER_ENVIRONMENT | {
        # Nothing of size lives in a worker's care, so there is nothing to spill.
        "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
        "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "0.98",
        "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": TCP_SECONDS,
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
    }


def scheduler_environment() -> dict[str, str]:
    """Return the environment of a scheduler that runs in a process of its own."""
    return {
        # A task whose worker died is told at once: how often it is tried again is the job's to say.
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": TCP_SECONDS,
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
    }
