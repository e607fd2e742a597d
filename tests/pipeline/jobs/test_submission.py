"""A job has one driver: whoever holds its lock keeps others from being submitted."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from latentscale_pipeline.jobs import submission
from latentscale_pipeline.jobs.schedulers import DriverState
from latentscale_pipeline.jobs.submission_records import Submission, record_submission
from latentscale_pipeline.storage.lock import Holder
from latentscale_pipeline.storage.objects import ObjectStore


def held(store: ObjectStore, generation: int, holder: Holder) -> None:
    store.create(f"lock/{generation:06d}.json", json.dumps(asdict(holder)).encode())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A job whose submitted driver has ended."""
    monkeypatch.setattr(submission, "look_at", lambda _: DriverState("ended", "FAILED", 1))
    store = ObjectStore(str(tmp_path))
    record_submission(store, Submission("slurm", "7", "", 0, requeue=False, time=0.0))
    return store


ELSEWHERE = Holder("node-3", 4, 0.0, "attempt", "another boot")


def test_a_driver_that_the_scheduler_saw_end_holds_no_lock(store: ObjectStore) -> None:
    held(store, 1, ELSEWHERE)
    assert submission._refuse_second(store)


@pytest.mark.parametrize(("generation", "holder"), [(1, Holder.here()), (2, ELSEWHERE)])
def test_who_resumed_the_job_since_still_does(
    store: ObjectStore, generation: int, holder: Holder
) -> None:
    held(store, generation, holder)
    assert not submission._refuse_second(store)
