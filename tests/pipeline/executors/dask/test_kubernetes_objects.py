"""Objects of Kubernetes: one that is being deleted is waited for before its name is used again."""

from typing import Any

import pytest

from latentscale_pipeline.errors import Incomplete
from latentscale_pipeline.executors.dask.kubernetes_objects import create_object
from latentscale_pipeline.jobs import submission
from latentscale_pipeline.jobs.submission import SubmissionSpec

MANIFEST = {"kind": "Job", "metadata": {"name": "ls-a", "namespace": "default"}}


class Server:
    """Kubernetes as far as it matters: deleting takes a few looks, and a taken name is refused."""

    def __init__(self, looks: int) -> None:
        self.there = True
        self.going: int | None = None
        self.looks = looks
        self.created = 0

    def object_from_spec(self, spec: Any, allow_unknown_type: bool = False) -> "Server":
        assert spec == MANIFEST
        return self

    def exists(self) -> bool:
        if self.going is not None:
            self.going -= 1
            self.there = self.going > 0
        return self.there

    def delete(self, propagation_policy: str) -> None:
        assert propagation_policy == "Foreground"
        self.going = self.looks

    def create(self) -> None:
        if self.there:
            raise RuntimeError("object is being deleted: jobs.batch ls-a already exists")
        self.created += 1


def test_a_deletion_is_waited_for() -> None:
    server = Server(looks=3)
    create_object(server, MANIFEST, poll_seconds=0.0)
    assert server.created == 1


def test_a_deletion_that_takes_too_long_is_one_line() -> None:
    with pytest.raises(Incomplete, match="still deleting the Job ls-a of an earlier run"):
        create_object(Server(looks=10**9), MANIFEST, deletion_seconds=0.01, poll_seconds=0.0)


def test_a_driver_waits_for_the_one_before_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(looks=2)
    monkeypatch.setattr(submission, "import_kr8s", lambda setting: server)
    text = '{"kind": "Job", "metadata": {"name": "ls-a", "namespace": "default"}}'
    spec = SubmissionSpec("kubernetes", "default", ["kubectl"], text)
    assert submission._hand_to_kubernetes(spec) == "ls-a"
    assert server.created == 1
