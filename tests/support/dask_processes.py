"""Schedulers and workers of Dask's own commands, each a process of its own, with or without TLS."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from latentscale_pipeline.config.cluster import Address, TlsFiles
from latentscale_pipeline.executors.dask.certificates import certificates
from latentscale_pipeline.executors.dask.environment import worker_environment
from tests.support.waiting import wait_for

GIB = 2**30


@dataclass(frozen=True)
class Place:
    """Where a process runs: what its command begins with, and the address it listens on."""

    prefix: tuple[str, ...] = ()
    host: str = "127.0.0.1"


@dataclass
class Scheduler:
    """A scheduler with workers, each a process of its own."""

    tls: TlsFiles | None
    address: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def settings(self, **fields: object) -> Address:
        known = {"kind": "address", "address": self.address, "tls": self.tls, "patience": 250}
        return Address.model_validate({**known, "memory_limit": 2 * GIB, **fields})


def tls_arguments(made: TlsFiles | None) -> list[str]:
    if made is None:
        return []
    files = (made.ca_file, made.cert, made.key)
    names = ("--tls-ca-file", "--tls-cert", "--tls-key")
    return [word for pair in zip(names, files, strict=True) for word in pair]


def start(
    program: str, *arguments: str, environment: dict[str, str], log: Path, place: Place
) -> subprocess.Popen[bytes]:
    with log.open("wb") as said:
        return subprocess.Popen(
            [*place.prefix, sys.executable, "-m", f"distributed.cli.{program}", *arguments],
            env={**os.environ, **environment},
            stderr=said,
        )


def wait_for_words(log: Path, pattern: str) -> re.Match[str]:
    """Wait until a process says this."""
    wait_for(lambda: re.search(pattern, log.read_text()) is not None, seconds=300)
    match = re.search(pattern, log.read_text())
    assert match is not None
    return match


@contextmanager
def scheduler(
    folder: Path, *, tls: bool, workers: Sequence[Place], at: Place = Place()
) -> Iterator[Scheduler]:
    """Run a scheduler and its workers for the time of a ``with`` block."""
    folder.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(certificates("test", None, str(folder))) if tls else None
        process = start(
            "dask_scheduler",
            *("--host", at.host, "--port", "0", "--no-dashboard"),
            *("--dashboard-address", "127.0.0.1:0", *tls_arguments(made)),
            place=at,
            environment={},
            log=folder / "scheduler.log",
        )
        address = wait_for_words(folder / "scheduler.log", r"Scheduler at:\s+(\S+)")[1]
        found = Scheduler(made, address, [process])
        try:
            for index, place in enumerate(workers):
                worker = start(
                    "dask_worker",
                    *(address, "--nthreads", "1", "--memory-limit", "2GiB", "--no-dashboard"),
                    *("--host", place.host, "--name", f"w{index}", *tls_arguments(made)),
                    place=place,
                    environment=worker_environment()
                    | {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": str(tls)},
                    log=folder / f"worker-{index}.log",
                )
                found.processes.append(worker)
            yield found
        finally:
            for process in reversed(found.processes):
                family = psutil.Process(process.pid).children(recursive=True)
                process.kill()
                process.wait()
                for member in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        member.kill()
