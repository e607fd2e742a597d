"""Jobs whose every number is on record, and what compares a new run with the record.

A record holds everything that `results.json` says of the data: scores, the measures' own parts,
sizes of the corpora, and a checksum of every array. Times, names, hashes, places, the cluster and
the version are left out. A job is started as a user starts it, by commands in processes of their
own, and only `results.json` and the arrays that it names are read: nothing here knows how the
package is divided into modules. The one exception are *limits*: constants, found by their name in
whatever module has them, that are lowered so that few rows take the routes of many.

Records hold to the bit on one kind of machine: sums of floating-point numbers depend on the
instructions that a processor has and on the versions of the libraries. Every record says where it
was made. Elsewhere numbers may differ by 1e-9 of their size or, unless their bracket is certified,
a fiftieth of it: rounding turns the vectors by which probes are split, and moves the ends of
brackets that are made of it. Arrays are compared by type and shape alone.

    python tests/acceptance/recorded.py                    run all small jobs and compare them
    python tests/acceptance/recorded.py everything demo    only these
    python tests/acceptance/recorded.py --large            the large job, in each of its places
    python tests/acceptance/recorded.py --write NAME       run a job twice and replace its record
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import logging
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "tests" / "data" / "recorded"
LEFT_OUT = ("uri", "source", "fingerprint")
"""What of a corpus depends on where it is."""

DRAWINGS = {"projection"}
"""Measures without scores, whose last digits grow into another picture on another machine."""

LARGE_RECORD = ROOT / "benchmarks" / "results" / "recorded-20k.json"

BUCKET = "recorded"
LIBRARIES = ("numpy", "scipy", "numba", "pynndescent")
ELSEWHERE = 1e-9
"""Relative difference that is allowed on a machine of another kind than the record's."""

NOISE = 1e-12
"""The same where a number is next to nothing."""

INTERVAL_SHARE = 0.02
"""The same for a number with a bracket of rounding or of probes, as a share of the bracket."""

SHOWN_DIFFERENCES = 30

Document = dict[str, Any]

# --- data ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows of a corpus, made from a seed: clusters, some rows twice, some nearly so.

    Attributes
    ----------
    n, d : int
        Rows and dimensions.
    seed : int
        Of everything that is drawn.
    labels, weights : bool
        Whether the corpus has them; ids it always has when it is ingested.
    clusters : int
        Groups that the rows are drawn from; a row's label is its group.
    spread : float
        Standard deviation of a coordinate within a group; the centres' is 1.
    dtype : str
        What the rows are stored as.
    shard_size : str
        About the size of a shard, as ``ingest`` takes it; empty for files that the job itself
        turns into a corpus.
    appended : int
        Rows, the last ones, that are added to the corpus in a second step.
    """

    n: int
    d: int
    seed: int
    labels: bool = False
    weights: bool = False
    clusters: int = 7
    spread: float = 0.35
    dtype: str = "float32"
    shard_size: str = "24KiB"
    appended: int = 0


def make_rows(rows: Rows) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float64]]:
    """Return the vectors, the group of every row, and a weight for every row."""
    generator = np.random.default_rng(rows.seed)
    centres = generator.normal(size=(rows.clusters, rows.d))
    shares = 1.0 / np.arange(1, rows.clusters + 1)
    groups = generator.choice(rows.clusters, size=rows.n, p=shares / shares.sum())
    # Coordinates matter less and less, as those of embeddings do after a rotation.
    scales = rows.spread / np.sqrt(1.0 + np.arange(rows.d) / 8)
    noise = generator.standard_normal(size=(rows.n, rows.d), dtype=np.float32)
    vectors = (centres[groups] + scales * noise).astype(np.float32)
    few = max(rows.n // 60, 2)
    order = generator.permutation(rows.n)
    first, twice, nearly = order[:few], order[few : 2 * few], order[2 * few : 3 * few]
    vectors[twice] = vectors[first]
    vectors[nearly] = vectors[first] * np.float32(1 + 2e-6)
    groups[twice] = groups[nearly] = groups[first]
    weights = generator.integers(1, 9, size=rows.n) / 4.0
    return vectors, groups, weights


# --- jobs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A recorded job.

    Attributes
    ----------
    name : str
        Of the job and of its record.
    corpus, reference : Rows or None
        Its data.
    config : mapping
        Keys of its configuration beside data, output and cluster.
    demo : bool
        Whether the command ``demo`` runs it.
    places : sequence of str
        Where it runs, with the same numbers everywhere: keys of :data:`PLACES`.
    limits : mapping
        Constants of the package that are lowered, by name; with ``()`` after it, what a function
        of that name returns. Such a job runs in one process: workers don't know of them.
    """

    name: str
    corpus: Rows | None
    reference: Rows | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    demo: bool = False
    places: Sequence[str] = ("serial",)
    limits: Mapping[str, int] = field(default_factory=dict)


SERIAL = {"kind": "serial", "memory_limit": "2GiB"}
LOCAL = {"kind": "local", "workers": 2, "threads": 1, "memory_limit": "2GiB"}

PLACES: Mapping[str, tuple[Mapping[str, Any] | None, bool]] = {
    "own": (None, False),
    "serial": (SERIAL, False),
    "local": (LOCAL, False),
    "serial-store": (SERIAL, True),
    "local-store": (LOCAL, True),
}
"""The cluster of a place, None for the default, and whether data and job are in a store."""

TIMES = {"count": 16}

EVERYTHING: Mapping[str, Any] = {
    "seed": 3,
    "replicates": {"count": 4, "rows": 150},
    "measures": {
        "heat": {"times": TIMES},
        "geomca": {},
        "magnitude": {},
        "vendi": {"labels": True},
        "baselines": {"rows": 300},
    },
}

SMALL_JOBS: Sequence[Job] = (
    Job(
        "quickstart",
        Rows(620, 24, 1, shard_size=""),
        places=("own",),
    ),
    Job(
        "compare",
        Rows(560, 20, 2, shard_size=""),
        Rows(640, 20, 3, shard_size=""),
        places=("own",),
    ),
    Job("demo", None, demo=True, places=("own",)),
    Job(
        "everything",
        Rows(1150, 16, 4, labels=True, shard_size="8KiB"),
        Rows(1080, 16, 5, labels=True, shard_size="8KiB"),
        EVERYTHING,
        places=("serial", "local", "serial-store"),
    ),
    Job(
        "in-a-store",
        Rows(1100, 12, 24, labels=True, weights=True, shard_size="8KiB"),
        config={
            "measures": {
                "heat": {"times": TIMES, "probes": 8},
                "vendi": {"labels": True, "kernels": ["cosine"]},
                "baselines": {},
            },
        },
        places=("serial", "serial-store"),
    ),
    Job(
        "by-label",
        Rows(420, 12, 6, labels=True, clusters=4, shard_size="8KiB"),
        config={
            "group_by": "labels",
            "measures": {
                "heat": {"times": TIMES},
                "magnitude": {"scales": 8},
                "vendi": {"kernels": ["cosine", "laplacian"]},
                "baselines": {},
            },
        },
        places=("serial", "local"),
    ),
    Job(
        "routes",
        Rows(560, 20, 7, shard_size="16KiB"),
        Rows(520, 20, 8, shard_size="16KiB"),
        {
            "seed": 11,
            "replicates": {"count": 3, "rows": 200},
            "scales_from": "corpus",
            "measures": {
                "heat": {
                    "neighbours": "cells",
                    "times": TIMES,
                    "steps": "auto",
                    "probes": 24,
                    "tolerance": 1e-2,
                },
                "geomca": {
                    "rows": 400,
                    "percentile": 5,
                    "delta": 0.5,
                    "sweep": {
                        "epsilon": [0.8, 1.0],
                        "delta": [0.5, 0.75],
                        "eta_c": [0.0, 0.3],
                        "eta_q": [0.1],
                    },
                },
                "magnitude": {"method": "cg", "scales": 6, "merge_within": 1e-3},
                "vendi": {
                    "method": "lanczos",
                    "kernels": [
                        {"name": "rbf", "bandwidth": "median"},
                        {"name": "laplacian", "bandwidth": 3.0},
                    ],
                    "orders": [0.5, 1, 2, "inf"],
                },
            },
        },
    ),
    Job(
        "subsets",
        Rows(2100, 12, 9, shard_size="32KiB"),
        config={
            "budget": {"pairs": 2.0e6},
            "measures": {
                "magnitude": {"method": "subsample", "scales": 6},
                "vendi": {"method": "subsample", "kernels": ["rbf"]},
            },
        },
    ),
    Job(
        "landmarks",
        Rows(2200, 10, 11),
        config={
            "budget": {"pairs": 4.0e8},
            "measures": {
                "magnitude": {"method": "nystrom", "scales": 6},
                "vendi": {"method": "nystrom", "kernels": ["rbf", "laplacian"]},
            },
        },
    ),
    Job(
        "fourier",
        Rows(400, 10, 12),
        config={
            "measures": {
                "magnitude": {"scales": [0.0, 0.1, 0.5, 2.0, 8.0]},
                "vendi": {
                    "method": "fourier",
                    "kernels": ["rbf"],
                    "orders": [0, 0.5, 1, 3, "inf"],
                },
            },
        },
    ),
    Job(
        "angles",
        Rows(700, 18, 13),
        Rows(600, 18, 14),
        {
            "measures": {
                "heat": {
                    "metric": "cosine",
                    "times": TIMES,
                    "probes": 16,
                    "distribution": "gaussian",
                    "variance_reduction": "linear",
                    "normalization": "er",
                },
                "magnitude": {"metric": "manhattan", "scales": 8},
                "vendi": {"kernels": ["laplacian"]},
            },
        },
    ),
    Job(
        "blocks-of-streets",
        Rows(650, 14, 15),
        Rows(600, 9, 16),
        {
            "measures": {
                "heat": {
                    "metric": "manhattan",
                    "times": TIMES,
                    "laplacian": "unnormalized",
                    "probes": 12,
                    "variance_reduction": "none",
                    "normalization": "complete",
                },
                "magnitude": {"metric": "cosine", "scales": 8, "target": 0.8},
            },
        },
    ),
    Job(
        "weights",
        Rows(
            1300,
            16,
            17,
            labels=True,
            weights=True,
            dtype="float16",
            shard_size="8KiB",
            appended=200,
        ),
        Rows(1700, 16, 18, labels=True, weights=True, dtype="float16", shard_size="8KiB"),
        {
            "exclude_shards": {"reference": ["vectors/c/0/0"]},
            "measures": {
                "heat": {"times": TIMES, "k": 8},
                "geomca": {"delta": 0.7, "eta_c": 0.2, "eta_q": 0.2},
                "vendi": {"labels": True, "kernels": ["cosine", "rbf"]},
                "baselines": {"k": 3},
            },
        },
    ),
    Job(
        "lowered-heat",
        Rows(2300, 8, 19, shard_size="4KiB"),
        config={
            "measures": {
                "heat": {"neighbours": "cells", "times": TIMES, "recall": 0.95, "probes": 16},
            },
        },
        limits={
            "HOME_ROWS": 60,
            "cell_cap()": 300,
            "GROUP_BYTES": 60_000,
            "VERTEX_BLOCK": 900,
            "MAX_SECTIONS": 0,
            "GRAPH_BYTES": 0,
            "MAX_UNDIVIDED": 4,
            "SEARCHED_COARSE_CELLS": 3,
            "JOINED_ENTRIES": 0,
        },
    ),
    Job(
        "lowered-pairs",
        Rows(1200, 8, 22, shard_size="4KiB"),
        Rows(1050, 8, 23, shard_size="4KiB"),
        {
            "measures": {
                "geomca": {"delta": 0.6},
                "magnitude": {"method": "cg", "scales": 5},
                "vendi": {"kernels": ["cosine"]},
                "baselines": {},
            },
        },
        limits={
            "GROUP_BYTES": 96_000,
            "ROUNDED_ROWS": 256,
            "MIN_HELD_ROWS": 128,
            "MAX_HELD_ROWS": 128,
            "SHARDS_PER_TASK": 1,
        },
    ),
    Job(
        "lowered-lanczos",
        Rows(1500, 8, 25, shard_size="4KiB"),
        config={"measures": {"vendi": {"kernels": ["rbf"], "method": "lanczos"}}},
        limits={"GROUP_BYTES": 60_000, "ROUNDED_ROWS": 256},
    ),
    Job(
        "many-cells",
        Rows(4500, 4096, 21, shard_size="8MiB"),
        config={"measures": {"heat": {"neighbours": "cells", "times": TIMES}}},
    ),
)
"""Together they take every route that a configuration can force on few rows."""

LARGE_JOB = Job(
    "recorded-20k",
    Rows(20_000, 64, 101, labels=True, clusters=20, shard_size="512KiB"),
    Rows(20_000, 64, 102, labels=True, clusters=20, shard_size="512KiB"),
    {
        "replicates": {"count": 4, "rows": 4000},
        "measures": {
            "heat": {},
            "geomca": {},
            "magnitude": {},
            "vendi": {"labels": True},
            "baselines": {},
        },
    },
    places=("serial", "local", "local-store"),
)
"""All measures as they are by default, on enough rows for the iterated methods."""


def record_of(job: Job) -> Path:
    """Say where a job's record is."""
    return LARGE_RECORD if job is LARGE_JOB else RECORDS / f"{job.name}.json"


# --- running a job ---------------------------------------------------------------------------

_LOWERED = """
import importlib, json, pkgutil, sys
limits = json.loads(sys.argv.pop(1))
for package in ("latentscale", "latentscale_pipeline"):
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
ours = [m for n, m in sys.modules.items() if n.partition(".")[0].startswith("latentscale")]
for name, value in limits.items():
    plain = name.removesuffix("()")
    having = [module for module in ours if plain in vars(module)]
    if not having:
        sys.exit("no module has " + plain + ": see the limits in tests/recorded.py")
    for module in having:
        setattr(module, plain, value if plain == name else lambda *_, value=value: value)
from latentscale_pipeline.cli import main
main()
"""


class CommandFailed(Exception):
    """A command ended with another exit code than 0; the text is what it said."""


def run_command(
    folder: Path, *arguments: str, limits: Mapping[str, int] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``latentscale`` in a process of its own, in a folder."""
    start = ["-c", _LOWERED, json.dumps(limits)] if limits else ["-m", "latentscale_pipeline.cli"]
    ended = subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=7200,
    )
    if ended.returncode != 0:
        raise CommandFailed(f"latentscale {' '.join(arguments)}\n{ended.stderr[-4000:]}")
    return ended


def run_job(job: Job, folder: Path, place: str, store: str = "") -> str:
    """Run a job in an empty folder.

    Parameters
    ----------
    job : Job
        The job.
    folder : Path
        Where its files are written, and the folder that the commands run in.
    place : str
        One of the job's places.
    store : str
        URL in an object store below which corpora and job are, for places in a store.

    Returns
    -------
    str
        Path or URL of the finished job's folder.
    """
    cluster, in_store = PLACES[place]
    base = f"{store}/" if in_store else ""
    output = f"{base}jobs"
    if job.demo:
        run_command(folder, "demo", "--output", output, "--quiet")
        return _only_job(folder, output)
    data = {
        role: _write_corpus(folder, role, rows, base)
        for role, rows in (("corpus", job.corpus), ("reference", job.reference))
        if rows is not None
    }
    keys: Document = {**data, "output": output}
    if cluster is not None:
        keys["cluster"] = cluster
    config = folder / "job.yaml"
    config.write_text(json.dumps({"name": job.name, **keys, **job.config}, indent=1))
    run_command(folder, "run", config.name, "--quiet", limits=job.limits)
    return _only_job(folder, output)


def _write_corpus(folder: Path, role: str, rows: Rows, base: str) -> str:
    """Write the files of a corpus, ingest them where that is asked for; return what to name."""
    vectors, groups, weights = make_rows(rows)
    if not rows.shard_size:
        np.save(folder / f"{role}.npy", vectors)
        return f"{role}.npy"
    corpus = f"{base}{role}.zarr"
    first = rows.n - rows.appended
    for step, (start, stop) in enumerate(((0, first), (first, rows.n))):
        if start == stop:
            continue
        named = f"{role}-{step}"
        np.save(folder / f"{named}.npy", vectors[start:stop])
        beside = {"ids": [f"{role}/{i:05}" for i in range(start, stop)]}
        if rows.labels:
            beside["labels"] = [f"group {group}" for group in groups[start:stop]]
        if rows.weights:
            beside["weights"] = [repr(float(weight)) for weight in weights[start:stop]]
        options = ["--shard-size", rows.shard_size]
        for name, lines in beside.items():
            (folder / f"{named}-{name}.txt").write_text("\n".join(lines) + "\n")
            options += [f"--{name}", f"{named}-{name}.txt"]
        options += ["--append"] if step else ["--dtype", rows.dtype]
        run_command(folder, "ingest", f"{named}.npy", corpus, *options)
    return corpus


def _only_job(folder: Path, output: str) -> str:
    url = output if "://" in output else str(folder / output)
    files, root = fsspec.url_to_fs(url)
    [found] = files.glob(f"{root}/*/results.json")
    return str(files.unstrip_protocol(found) if "://" in url else found).rpartition("/")[0]


@contextmanager
def object_store() -> Iterator[str]:
    """Serve an empty object store from this process; the environment points at it meanwhile."""
    import boto3  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    changed = {
        "AWS_ACCESS_KEY_ID": "testkey",
        "AWS_SECRET_ACCESS_KEY": "testsecret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    removed = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy")
    before = {name: os.environ.get(name) for name in (*changed, *removed)}
    for name in removed:
        os.environ.pop(name, None)
    os.environ.update(changed)
    # A file system keeps the address that it was made with.
    file_systems = fsspec.get_filesystem_class("s3")
    file_systems.clear_instance_cache()
    try:
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}"
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        file_systems.clear_instance_cache()
        server.stop()


# --- what is compared ------------------------------------------------------------------------


def reduce_results(folder: str) -> Document:
    """Read a finished job and keep what depends on its data and settings alone.

    Parameters
    ----------
    folder : str
        Path or URL of the job's folder.

    Returns
    -------
    dict
        ``corpora``, ``scores``, ``measures`` and ``arrays``, JSON throughout.
    """
    files, root = fsspec.url_to_fs(folder)
    results = json.loads(files.cat_file(f"{root}/results.json"))
    return {
        "corpora": {
            role: corpus and {k: v for k, v in corpus.items() if k not in LEFT_OUT}
            for role, corpus in results["corpora"].items()
        },
        "scores": results["scores"],
        "measures": {n: part for n, part in results["measures"].items() if n not in DRAWINGS},
        "arrays": {
            name: describe_array(files.cat_file(f"{root}/{key}"))
            for name, key in sorted(results["arrays"].items())
            if name.partition("/")[0] not in DRAWINGS
        },
    }


def describe_array(stored: bytes) -> Document:
    """Return type, shape and SHA-256 of the values of an array in NumPy's format."""
    file = io.BytesIO(stored)
    array = np.load(file, allow_pickle=False)
    if file.read():
        raise ValueError("there is more in the object than one array")
    values = np.ascontiguousarray(array)
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
    }


def describe_data(job: Job) -> Document:
    """Return a checksum of the rows of every corpus: whether two runs began with the same."""
    return {
        role: hashlib.sha256(b"".join(part.tobytes() for part in make_rows(rows))).hexdigest()
        for role, rows in (("corpus", job.corpus), ("reference", job.reference))
        if rows is not None
    }


def describe_machine() -> Document:
    """Return what numbers may depend on to the last bit: instructions, and libraries."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        text = ""
    said = {
        key: match[1].strip()
        for key in ("model name", "cpu family", "model", "flags")
        if (match := re.search(rf"^{key}\s*:(.*)$", text, re.MULTILINE))
    }
    flags = " ".join(sorted(said.get("flags", "").split()))
    return {
        "processor": said.get("model name", platform.processor() or platform.machine()),
        "family": f"{said.get('cpu family', '?')}/{said.get('model', '?')}",
        "instructions": hashlib.sha256(flags.encode()).hexdigest()[:16],
        "linear_algebra": sorted(
            {
                f"{info.get('internal_api')} {info.get('version')} {info.get('architecture')}"
                for info in threadpool_info()
                if info.get("user_api") == "blas"
            }
        ),
        "libraries": {name: metadata.version(name) for name in LIBRARIES},
    }


@dataclass(frozen=True)
class Difference:
    """A place in the document where old and new differ; None is for what one of them lacks."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.path}: {_short(self.old)} -> {_short(self.new)}"


def find_differences(
    old: Any, new: Any, *, exactly: bool = True, path: str = "", slack: float = NOISE
) -> Iterator[Difference]:
    """Compare two documents, value by value.

    Parameters
    ----------
    old, new : object
        JSON values.
    exactly : bool
        Whether numbers must be equal to the bit and checksums count; else numbers may differ as
        they do between machines.
    path : str
        What to put before the paths.
    slack : float
        By how much numbers may differ on another machine whatever their size.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        if old.get("bounds") in ("exact", "interval95") and isinstance(old.get("upper"), float):
            slack = max(slack, INTERVAL_SHARE * (old["upper"] - old["lower"]))
        for key in [*old, *(key for key in new if key not in old)]:
            if key == "sha256" and not exactly:
                continue
            where = f"{path}.{key}" if path else str(key)
            if key not in old or key not in new:
                yield Difference(where, old.get(key), new.get(key))
            else:
                yield from find_differences(
                    old[key], new[key], exactly=exactly, path=where, slack=slack
                )
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield Difference(f"{path}.length", len(old), len(new))
        for index, (before, after) in enumerate(zip(old, new, strict=False)):
            where = f"{path}[{_row_name(index, before)}]"
            yield from find_differences(before, after, exactly=exactly, path=where, slack=slack)
    elif not (_equal(old, new) if exactly else _close(old, new, slack)):
        yield Difference(path, old, new)


def _equal(old: Any, new: Any) -> bool:
    # A representation tells 1 from 1.0 and 0.0 from -0.0, and has every bit of a float.
    return type(old) is type(new) and repr(old) == repr(new)


def _close(old: Any, new: Any, slack: float) -> bool:
    if isinstance(old, float) and isinstance(new, int | float):
        return math.isclose(old, new, rel_tol=ELSEWHERE, abs_tol=slack)
    return _equal(old, new)


def _row_name(index: int, row: Any) -> str:
    """Say which row of a table it is, for people."""
    if not isinstance(row, dict):
        return str(index)
    names = ("measure", "of", "score", "kernel", "order", "label")
    return " ".join([str(index), *(str(row[name]) for name in names if row.get(name))])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def explain(differences: Sequence[Difference]) -> str:
    """Write differences for people: how many, and the first of them."""
    lines = [f"{len(differences)} values differ from the record:"]
    lines += [f"  {difference}" for difference in differences[:SHOWN_DIFFERENCES]]
    if len(differences) > SHOWN_DIFFERENCES:
        lines.append(f"  ... and {len(differences) - SHOWN_DIFFERENCES} more")
    return "\n".join(lines)


def compare_with_record(
    job: Job, found: Document, *, exactly: bool | None = None
) -> list[Difference]:
    """Compare what a run of a job gave with its record; an empty list is a good end.

    By default numbers must be equal to the bit if the record is of a machine like this one.
    """
    record = json.loads(record_of(job).read_text("utf-8"))
    if exactly is None:
        exactly = record["machine"] == describe_machine()
    data = list(find_differences(record["data"], describe_data(job), exactly=exactly, path="data"))
    return data + list(find_differences(record["found"], found, exactly=exactly))


# --- the command -----------------------------------------------------------------------------


def run_and_reduce(job: Job, place: str, store: str = "") -> Document:
    """Run a job in a folder that is removed afterwards, and return what is compared."""
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        url = f"{store}/{uuid.uuid4().hex}" if store else ""
        return reduce_results(run_job(job, Path(folder), place, url))


def write_record(job: Job, found: Document) -> None:
    """Replace a job's record."""
    record = {"machine": describe_machine(), "data": describe_data(job), "found": found}
    path = record_of(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", "utf-8")


def main() -> None:
    """Run jobs in all their places and compare, or record them."""
    parser = argparse.ArgumentParser(description="Run recorded jobs and compare their numbers.")
    parser.add_argument("names", nargs="*", help="jobs; all small ones by default")
    parser.add_argument("--large", action="store_true", help="the large job instead")
    parser.add_argument("--place", action="append", help="only there", choices=list(PLACES))
    parser.add_argument("--write", action="store_true", help="replace records")
    options = parser.parse_args()
    known = {job.name: job for job in SMALL_JOBS}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no job is called {unknown[0]}; there are {', '.join(known)}")
    jobs = [LARGE_JOB] if options.large else [known[name] for name in options.names or known]
    failed = False
    with object_store() as store:
        for job in jobs:
            failed |= not _check(job, options.place or job.places, store, write=options.write)
    sys.exit(1 if failed else 0)


def _check(job: Job, places: Sequence[str], store: str, *, write: bool) -> bool:
    """Run a job in places, once more in the first if it is to be recorded; tell if all agree."""
    again = [places[0], *places] if write and len(places) == 1 else places
    first: Document | None = None
    good = True
    for place in again:
        started = time.perf_counter()
        found = run_and_reduce(job, place, store if PLACES[place][1] else "")
        seconds = time.perf_counter() - started
        if not write:
            differences = compare_with_record(job, found)
        else:
            differences = [] if first is None else list(find_differences(first, found))
            first = first or found
        said = explain(differences) if differences else "equal"
        sys.stdout.write(f"{job.name} {place} {seconds:.1f} s: {said}\n")
        sys.stdout.flush()
        good &= not differences
    if write and good and first is not None:
        write_record(job, first)
    return good


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose latentscale/ holds tests and would hide the package
    main()
