"""The promise on object stores at its full counts; run by ``make test-full`` as ``stores``."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import numpy as np

from tests.support.faulty_store import faulty_store
from tests.support.jobs import results_of, run_command, timeless
from tests.support.object_gateway import (
    BUCKET,
    KEY,
    SECRET,
    NotToBeHad,
    ObjectGateway,
    install,
    object_gateway,
)

if TYPE_CHECKING:
    from tests.acceptance.run import Bench

RUNS = 5
ROWS = 1000
SHARD_SIZE = "128KiB"
CLUSTER = {"kind": "local", "workers": 2, "memory_limit": "2GiB"}
UP_SECONDS, DOWN_SECONDS = (1.0, 8.0), (0.1, 3.0)
"""Between which bounds the gateway lives, and is away."""


def real_object_store(bench: Bench) -> list[dict[str, Any]]:
    """Ingest and run jobs at Ceph's gateway, behind a faulty proxy, while it is killed."""
    rows = {"corpus": bench.rows[: 2 * ROWS : 2], "reference": bench.rows[1 : 2 * ROWS : 2]}
    fingerprints = {}
    for role, values in rows.items():
        np.save(bench.folder / f"{role}.npy", values)
        corpus = bench.folder / f"{role}.zarr"
        fingerprints[role] = _ingest(bench.folder / f"{role}.npy", corpus)["fingerprint"]
    places = (bench.folder / "corpus.zarr", bench.folder / "reference.zarr")
    ended = run_command("run", bench.job("stores", *places, cluster=CLUSTER))
    if ended.returncode != 0:
        return [_record({"said": ended.stderr[-300:]}, held=False)]
    expected = timeless(results_of(bench.output("stores")))
    folder = Path(tempfile.mkdtemp(prefix="gateway-"))
    try:
        install()
        with object_gateway(folder / "server") as gateway, _environment(gateway.url):
            client = boto3.client("s3")
            client.create_bucket(Bucket=BUCKET)
            for role in rows:
                client.upload_file(str(bench.folder / f"{role}.npy"), BUCKET, f"{role}.npy")
            runs = [
                _disturbed(bench, gateway, seed, fingerprints, expected)
                for seed in range(1, RUNS + 1)
            ]
    except NotToBeHad as reason:
        return [_record({"skipped": str(reason)}, held=None)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    happened = sum((Counter(run["happened"]) for run in runs), Counter())
    return [
        _record(
            {
                "rows_a_side": ROWS,
                "happened": dict(happened),
                "held": sum(run["held"] for run in runs),
                "runs": runs,
            },
            held=all(run["held"] for run in runs) and happened["gateway_killed"] > RUNS,
        )
    ]


def _record(figures: dict[str, Any], held: bool | None) -> dict[str, Any]:
    return {
        "promise": "a real S3 server that fails requests and is killed gives what a disk gives",
        "figures": figures,
        "limit": f"{RUNS} seeded ingests and jobs exit 0 with the same fingerprints and results",
        "held": held,
    }


def _disturbed(
    bench: Bench,
    gateway: ObjectGateway,
    seed: int,
    fingerprints: dict[str, str],
    expected: dict[str, Any],
) -> dict[str, Any]:
    """Ingest two corpora from the gateway into it, and run one job on them there."""
    place = f"s3://{BUCKET}/{seed}"
    found: dict[str, Any] = {}
    problem = ""
    begun = time.perf_counter()
    with (
        faulty_store(gateway.url, seed) as proxy,
        _environment(proxy.url),
        _killing(gateway, seed) as kills,
    ):
        try:
            for role in fingerprints:
                source, corpus = f"s3://{BUCKET}/{role}.npy", f"{place}/{role}.zarr"
                found[role] = _ingest(source, corpus)["fingerprint"]
            corpora = (f"{place}/corpus.zarr", f"{place}/reference.zarr")
            config = bench.job("stores", *corpora, cluster=CLUSTER, output=f"{place}/jobs")
            ended = run_command("run", config, "--json")
            if ended.returncode != 0:
                raise _Failed(f"run: exit {ended.returncode}: {_said(ended.stderr)}")
            found["results"] = timeless(json.loads(ended.stdout))
        except _Failed as failure:
            problem = str(failure)
    same = found == {**fingerprints, "results": expected}
    return {
        "seed": seed,
        "seconds": round(time.perf_counter() - begun, 1),
        "happened": {**proxy.seen, "gateway_killed": len(kills)},
        "held": same,
        **({} if same else {"problem": problem or "other numbers"}),
    }


class _Failed(Exception):
    """A command that didn't end well, and what it said."""


def _ingest(source: Path | str, corpus: Path | str) -> dict[str, Any]:
    ended = run_command("ingest", source, corpus, "--shard-size", SHARD_SIZE, "--json")
    if ended.returncode != 0:
        raise _Failed(f"ingest: exit {ended.returncode}: {_said(ended.stderr)}")
    described: dict[str, Any] = json.loads(ended.stdout)
    return described


def _said(err: str) -> str:
    return (err.strip().splitlines() or [""])[-1][-300:]


@contextmanager
def _killing(gateway: ObjectGateway, seed: int) -> Iterator[list[float]]:
    """Kill the gateway and start it again, at random times, for the time of a ``with`` block."""
    generator = np.random.default_rng([90, seed])
    end = threading.Event()
    kills: list[float] = []

    def kill_now_and_then() -> None:
        while not end.wait(generator.uniform(*UP_SECONDS)):
            gateway.kill_gateway()
            kills.append(time.monotonic())
            end.wait(generator.uniform(*DOWN_SECONDS))
            gateway.start_gateway()

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        yield kills
    finally:
        end.set()
        killer.join()


@contextmanager
def _environment(url: str) -> Iterator[None]:
    """Let this process and those that it starts find an S3 server."""
    before = dict(os.environ)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy"):
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before
