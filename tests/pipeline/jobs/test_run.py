"""The main job, end to end: real files, real processes, values against dense algebra."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.config.job import JobConfig
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs import run as runs
from latentscale_pipeline.jobs.run import frozen_config
from latentscale_pipeline.storage.lock import hold_lock
from latentscale_pipeline.storage.objects import ObjectStore
from tests import oracles
from tests.conftest import Ended
from tests.support.jobs import DAMAGES, command_line, damage, results_of, timeless
from tests.support.results_documents import check_results
from tests.support.waiting import wait_for

Command = Callable[..., Ended]

CONFIG = """
name: {name}
corpus: {corpus}
reference: {reference}
output: {output}
measures:
  heat: {{times: {{count: 32}}}}
  geomca: {{}}
  magnitude: {{scales: 8}}
  vendi: {{kernels: [cosine, {{name: rbf, bandwidth: median}}, {{name: laplacian, bandwidth: 2.0}}],
          orders: [0, 0.1, 1, 2, inf]}}
sampling: {{method: none}}
cluster: {cluster}
"""
SERIAL = "{kind: serial}"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    centres = generator.normal(size=(6, 12)) * 3
    return {
        role: (centres[generator.integers(6, size=n)] + generator.normal(size=(n, 12))).astype("f4")
        for role, n in (("corpus", 200), ("reference", 170))
    }


@pytest.fixture
def job(tmp_path: Path, data: dict[str, np.ndarray]) -> Callable[..., Path]:
    """Write a job's files; what isn't named is as in the other tests."""

    def write(name: str = "Toy Job!", cluster: str = SERIAL, **places: str) -> Path:
        for role, rows in data.items():
            path = tmp_path / f"{role}.npy"
            if not path.exists():
                np.save(path, rows)
        fields = {
            "corpus": str(tmp_path / "corpus.npy"),
            "reference": str(tmp_path / "reference.npy"),
            "output": str(tmp_path / "jobs"),
            **places,
        }
        config = tmp_path / f"{len(list(tmp_path.glob('*.yaml')))}.yaml"
        config.write_text(CONFIG.format(name=json.dumps(name), cluster=cluster, **fields))
        return config

    return write


def rows(results: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [
        row
        for row in results["scores"]
        if all(row.get(name) == value for name, value in wanted.items())
    ]


def test_values_against_dense_algebra(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path, data: dict[str, np.ndarray]
) -> None:
    ended = latentscale("run", job())
    assert ended.code == 0, ended.err
    results = results_of(tmp_path / "jobs")
    check_results(results)
    _check_corpora(results, data)
    for role, vectors in data.items():
        _check_heat(results["measures"]["heat"][role], vectors)
        _check_magnitude(results, role, vectors)
        _check_vendi(results, role, vectors, data["reference"])
    _check_geomca(results["measures"]["geomca"], data)
    _check_imd(results["measures"]["heat"]["imd"], data)
    folder = next((tmp_path / "jobs").glob("toy-job-*"))
    weights = np.load(folder / results["arrays"]["magnitude/corpus/weights"])
    assert weights.shape == (200,)
    assert weights.sum() == pytest.approx(results["measures"]["magnitude"]["corpus"]["value"][-1])
    neighbours = np.load(folder / results["arrays"]["heat/corpus/neighbours"])
    expected = [
        [j for _, j in row[:5]]
        for row in oracles.sorted_distances(data["corpus"].astype(float), "euclidean")
    ]
    np.testing.assert_array_equal(neighbours, expected)
    assert "<html" in (folder / "report.html").read_text()
    for name in ("config.json", "plan.json", "events"):
        assert (folder / name).exists()


def _check_corpora(results: dict[str, Any], data: dict[str, np.ndarray]) -> None:
    for role, vectors in data.items():
        found = results["corpora"][role]
        assert (found["n"], found["d"], found["dtype"]) == (*vectors.shape, "float32")
        assert found["duplicates"] == 0
        assert found["fingerprint"] == open_corpus(found["uri"]).fingerprint


def _graph(vectors: np.ndarray) -> tuple[Any, Any]:
    lists = [
        [j for _, j in row[:5]]
        for row in oracles.sorted_distances(vectors.astype(float), "euclidean")
    ]
    adjacency = oracles.adjacency_by_loops(lists)
    return adjacency, oracles.laplacian_by_loops(adjacency)


def _check_heat(found: dict[str, Any], vectors: np.ndarray) -> None:
    adjacency, laplacian = _graph(vectors)
    exact = np.asarray(oracles.dense_trace(laplacian, found["times"]))
    assert found["graph"]["edges"] == int(np.sum(adjacency)) // 2
    assert found["graph"]["recall"]["value"] == 1.0
    np.testing.assert_allclose(found["times"], np.logspace(-1, 1, 32))
    assert (np.asarray(found["lower"]) <= exact + 1e-12).mean() >= 0.9
    assert (np.asarray(found["upper"]) >= exact - 1e-12).mean() >= 0.9
    np.testing.assert_allclose(found["trace"], exact, rtol=5e-3)


def _check_imd(found: dict[str, Any], data: dict[str, np.ndarray]) -> None:
    spectra = [
        np.maximum(np.linalg.eigvalsh(_graph(data[role])[1]), 0) for role in ("corpus", "reference")
    ]
    value, time = oracles.imd_of_spectra(*spectra)
    assert found["bounds"] == "exact"
    assert found["lower"] <= value <= found["upper"]
    assert found["value"] == pytest.approx(value, rel=1e-10)
    assert found["time"] == pytest.approx(time, rel=1e-6)


def _check_magnitude(results: dict[str, Any], role: str, vectors: np.ndarray) -> None:
    found = results["measures"]["magnitude"][role]
    distances = oracles.pairwise_distances(vectors.astype(float), "euclidean")
    shared = results["measures"]["magnitude"]["reference"]["convergence_scale"]
    np.testing.assert_allclose(found["scales"], np.linspace(0, shared, 8))
    dense = [1.0, *(oracles.dense_magnitude(distances, t)[0] for t in found["scales"][1:])]
    np.testing.assert_allclose(found["value"], dense, rtol=1e-6)
    own, _, _ = oracles.dense_magnitude(distances, found["convergence_scale"])
    assert own == pytest.approx(0.95 * len(vectors), rel=1e-4)
    assert found["area"] == pytest.approx(np.trapezoid(dense, found["scales"]), rel=1e-6)


def _check_vendi(
    results: dict[str, Any], role: str, vectors: np.ndarray, reference: np.ndarray
) -> None:
    distances = oracles.pairwise_distances(reference.astype(float), "euclidean")
    median = np.median(distances[np.triu_indices(len(reference), 1)])
    own = oracles.pairwise_distances(vectors.astype(float), "euclidean")
    unit = vectors.astype(float) / np.linalg.norm(vectors.astype(float), axis=1)[:, None]
    uniform = np.full(len(vectors), 1 / len(vectors))
    assert len(results["measures"]["vendi"][role]) == 15
    for entry in results["measures"]["vendi"][role]:
        sigma = entry["bandwidth"]
        if entry["kernel"] == "cosine":
            kernel = unit @ unit.T
        elif entry["kernel"] == "rbf":
            assert sigma == pytest.approx(median, rel=0.02)
            kernel = np.exp(-(own**2) / (2 * sigma**2))
        else:
            assert sigma == 2.0
            kernel = np.exp(-own / sigma)
        if entry["order"] == "0":
            expected = float(np.linalg.matrix_rank(kernel))
        else:
            expected = oracles.vendi_score(kernel, uniform, float(entry["order"]))
        assert entry["value"] == pytest.approx(expected, rel=1e-6), entry
        assert entry["lower"] <= entry["value"] <= entry["upper"]


def _check_geomca(found: dict[str, Any], data: dict[str, np.ndarray]) -> None:
    reference, corpus = data["reference"].astype(float), data["corpus"].astype(float)
    distances = oracles.pairwise_distances(reference, "euclidean")
    tenth = np.percentile(distances[np.triu_indices(len(reference), 1)], 10)
    assert found["epsilon"] == pytest.approx(tenth, rel=0.1)
    assert found["delta"] == found["epsilon"]
    kept = {
        role: oracles.greedy_sparsification(rows, found["delta"])[0]
        for role, rows in (("reference", reference), ("corpus", corpus))
    }
    assert found["sizes"] == {
        "reference": 170,
        "corpus": 200,
        "reference_sparse": len(kept["reference"]),
        "corpus_sparse": len(kept["corpus"]),
    }
    assert sum(part["size"] for part in found["components"]) == sum(map(len, kept.values()))
    covered = [part for part in found["components"] if part["quality"] > 0]
    assert found["precision"] == pytest.approx(
        sum(part["n_corpus"] for part in covered) / len(kept["corpus"])
    )
    assert found["recall"] == pytest.approx(
        sum(part["n_reference"] for part in covered) / len(kept["reference"])
    )


@pytest.mark.parametrize(
    "cluster",
    ["{kind: local, workers: 1, threads: 2}", "{kind: local, workers: 2, memory_limit: 2GiB}"],
)
def test_results_do_not_depend_on_the_executor(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path, cluster: str
) -> None:
    samples = ("-o", "sampling={samples: 5}")
    assert latentscale("run", job(output=str(tmp_path / "a")), *samples).code == 0
    ended = latentscale("run", job(output=str(tmp_path / "b"), cluster=cluster), *samples)
    assert ended.code == 0, ended.err
    first, second = results_of(tmp_path / "a"), results_of(tmp_path / "b")
    [plan] = (tmp_path / "b").glob("*/plan.json")
    projected = {s["stage"]: s["peak_memory_bytes"] for s in json.loads(plan.read_text())["stages"]}
    for timing in second["timings"]:
        assert timing["peak_memory_bytes"] < 1.2 * projected[timing["stage"]], timing
    assert first["job"]["cluster"] != second["job"]["cluster"]
    assert timeless(first) == timeless(second)


def test_the_same_job_on_an_object_store(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path, s3_url: str
) -> None:
    # All measures in a store are among the recorded jobs that the full suite compares.
    few = ("-o", "measures={vendi: {kernels: [cosine]}}")
    assert latentscale("run", job(), *few).code == 0
    ended = latentscale("run", job(output=f"{s3_url}/jobs"), *few, "--json")
    assert ended.code == 0, ended.err
    remote = json.loads(ended.out)
    assert timeless(remote) == timeless(results_of(tmp_path / "jobs"))
    store = ObjectStore(f"{s3_url}/jobs").child(remote["job"]["id"])
    assert json.loads(store.read("results.json")) == remote
    assert b"<html" in store.read("report.html")
    again = latentscale("run", job(output=f"{s3_url}/jobs"), *few)
    assert "nothing had to be computed" in again.out


def test_a_second_run_computes_nothing(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    config = job()
    latentscale("run", config)
    files = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    before = {path: path.stat().st_mtime_ns for path in files}
    ended = latentscale("run", config)
    assert ended.code == 0
    assert "nothing had to be computed" in ended.out
    assert "started" not in ended.err
    files = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    assert {path: path.stat().st_mtime_ns for path in files} == before, "no lock and no events"


def test_a_corpus_that_was_moved_is_found_after_the_job_was_run_again(
    latentscale: Command, tmp_path: Path, data: dict[str, np.ndarray]
) -> None:
    np.save(tmp_path / "rows.npy", data["corpus"])
    before, after = tmp_path / "before.zarr", tmp_path / "after.zarr"
    latentscale("ingest", tmp_path / "rows.npy", before)
    job = ("--name", "j", "--output", tmp_path / "jobs", "--measures", "duplicates", "--quiet")
    assert latentscale("run", before, *job).code == 0
    found = results_of(tmp_path / "jobs")
    before.rename(after)
    assert latentscale("rows", tmp_path / "jobs" / "j").code == 2
    assert latentscale("run", after, *job).code == 0
    again = results_of(tmp_path / "jobs")
    assert again["corpora"]["corpus"]["uri"] == str(after)
    assert again["job"]["finished"] == found["job"]["finished"], "its place in a series"
    assert again["scores"] == found["scores"]
    assert latentscale("rows", tmp_path / "jobs" / "j").code == 0
    assert latentscale("verify", tmp_path / "jobs" / "j").code == 0
    # Another corpus takes the place.
    shutil.copytree(after, before)
    np.save(tmp_path / "rows.npy", data["corpus"][:150])
    latentscale("ingest", tmp_path / "rows.npy", after, "--overwrite")
    assert latentscale("run", before, *job).code == 0
    assert latentscale("rows", tmp_path / "jobs" / "j").code == 0


def test_rows_say_that_shards_were_left_out(latentscale: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(3000, 4)).astype("f4"))
    corpus = tmp_path / "c.zarr"
    ingest([str(tmp_path / "rows.npy")], str(corpus), shard_bytes=1)
    left_out = "exclude_shards={corpus: [vectors/c/1/0]}"
    job = ("--name", "j", "--output", tmp_path / "jobs", "--measures", "duplicates", "--quiet")
    assert latentscale("run", corpus, *job, "-o", left_out).code == 0
    listed = latentscale("rows", tmp_path / "jobs" / "j", "--where", "source_row == 2048", "--json")
    assert "row: without the 1,024 rows of the source left out; source_row counts" in listed.err
    assert json.loads(listed.out)["row"] == 1024


def test_a_changed_job_reuses_what_it_can(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    config = job()
    latentscale("run", config)
    [first] = (tmp_path / "jobs").glob("toy-job-*")
    ended = latentscale("run", config, "-o", "measures.geomca.delta=0.5", "--json")
    timings = {t["stage"]: t for t in json.loads(ended.out)["timings"]}
    changed = {"sparsify-corpus", "sparsify-reference", "geomca"}
    for role in ("corpus", "reference"):
        assert timings[f"sparsify-{role}"]["reason"] == (
            f"computed: configuration (delta 1.0 → 0.5) changed since {first.name}"
        )
    changed |= {"expected-geomca", "sampled-rows-corpus", "sampled-rows-reference"} & set(timings)
    assert not any(timings[name]["resumed"] for name in changed)
    others = [t for name, t in timings.items() if name not in changed]
    assert {t["reason"] for t in others} == {f"reused from {first.name}"}
    assert all(t["resumed"] for t in others)


@pytest.mark.parametrize(
    "cluster", [SERIAL, pytest.param("{kind: local, workers: 2}", marks=pytest.mark.full)]
)
def test_killed_in_the_middle_and_run_again_at_once(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path, cluster: str
) -> None:
    assert latentscale("run", job(output=str(tmp_path / "undisturbed"))).code == 0
    config = job(cluster=cluster)
    arguments = command_line("run", config)
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    jobs = tmp_path / "jobs"
    wait_for(lambda: len(list(jobs.glob("*/stages/*/*/result.json"))) >= 4)
    process.kill()
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    process.wait()
    assert ended.returncode == 0, ended.stderr
    found = results_of(jobs)
    assert timeless(found) == timeless(results_of(tmp_path / "undisturbed"))
    assert any(t["reason"] == "already done" for t in found["timings"])
    assert any(t["reason"] == "computed" for t in found["timings"])


def test_a_run_that_was_replaced_writes_no_results(
    job: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, latentscale: Command
) -> None:
    assemble = runs.assemble_results

    def replaced(plan: Any, work: Any, *given: Any, **named: Any) -> Any:
        results = assemble(plan, work, *given, **named)
        with hold_lock(work.store, take_over=True):
            work.store.write("results.json", b"theirs")
        return results

    monkeypatch.setattr(runs, "assemble_results", replaced)
    few = ("-o", "measures={vendi: {kernels: [cosine]}}")
    ended = latentscale("run", job(), *few)
    assert ended.code == 3
    assert ended.err.splitlines()[-1].endswith("has taken over this job")
    [folder] = (tmp_path / "jobs").glob("toy-job-*")
    assert (folder / "results.json").read_text() == "theirs"
    assert not (folder / "report.html").exists()


def test_terminated_politely(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    config = job(cluster="{kind: local, workers: 1, memory_limit: 4GiB}")
    np.save(tmp_path / "many.npy", np.random.default_rng(1).normal(size=(3000, 4)))
    arguments = command_line(
        "run", config, "-o", f"corpus={tmp_path / 'many.npy'}", "-o", "reference=null",
        "-o", "measures={vendi: {kernels: [{name: rbf, bandwidth: 1.0}], method: exact}}",
    )  # fmt: skip
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    jobs = tmp_path / "jobs"
    # The first of all parts; the eigenvalues may come before what follows from it.
    wait_for(lambda: bool(list(jobs.glob("*/stages/hashes-*/*/part-*.json"))))
    workers = _children(process.pid)
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.strip().splitlines()[-1] == (
        "latentscale: interrupted; run the same command again to continue"
    )
    assert workers
    wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in workers))
    [folder] = jobs.glob("toy-job-*")
    assert (folder / "lock" / "000001.released").exists()
    ended = latentscale("status", folder)
    assert ended.out.splitlines()[0] == f"{folder.name}: interrupted (by SIGTERM)"


def _children(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("cluster", [SERIAL, "{kind: local, workers: 1}"])
def test_a_damaged_shard_is_named(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path, kind: str, cluster: str
) -> None:
    target = tmp_path / "corpus.zarr"
    job()
    assert latentscale("ingest", tmp_path / "corpus.npy", target).code == 0
    shard = target / open_corpus(str(target)).manifest.vectors.shards[0].key
    damage(shard, kind)
    ended = latentscale("run", job(corpus=str(target), cluster=cluster))
    assert ended.code == 2
    line = ended.err.strip().splitlines()[-1]
    assert line.startswith("latentscale: ")
    assert str(shard) in line
    assert "Traceback" not in ended.err


def test_cosine_refuses_rows_without_direction(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path, data: dict[str, np.ndarray]
) -> None:
    rows = data["corpus"].copy()
    rows[[3, 17]] = 0
    np.save(tmp_path / "zeros.npy", rows)
    ended = latentscale("run", job(corpus=str(tmp_path / "zeros.npy")))
    assert ended.code == 2
    assert "rows are zero, and the cosine kernel of vendi needs" in ended.err
    assert not list((tmp_path / "jobs").glob("toy-job-*"))


def test_differing_dimensions_are_refused_before_any_work(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path, data: dict[str, np.ndarray]
) -> None:
    np.save(tmp_path / "narrow.npy", data["reference"][:, :7])
    ended = latentscale("run", job(reference=str(tmp_path / "narrow.npy")))
    assert ended.code == 2
    assert "measures.geomca needs equal dimensions; the corpus has 12" in ended.err
    assert not list((tmp_path / "jobs").glob("toy-job-*"))


def test_a_job_that_can_not_fit_is_refused_before_any_work(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    np.save(tmp_path / "many.npy", np.random.default_rng(0).normal(size=(12_000, 2)))
    ended = latentscale(
        "run",
        job(corpus=str(tmp_path / "many.npy"), reference="null"),
        "-o",
        "cluster.memory_limit=1GiB",
        "-o",
        "measures={vendi: {kernels: [rbf], method: exact}}",
    )
    assert ended.code == 2
    line = ended.err.strip().splitlines()[-1]
    assert "stage vendi-rbf-median-corpus needs 1." in line
    assert "cluster.memory_limit is 1.0GiB; set cluster.memory_limit to 1.5GiB" in line
    assert not list((tmp_path / "jobs").glob("toy-job-*"))


def test_identical_rows_have_reasons_for_what_they_lack(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    np.save(tmp_path / "same.npy", np.ones((50, 4), dtype="f4"))
    ended = latentscale(
        "run",
        job(corpus=str(tmp_path / "same.npy"), reference="null"),
        "-o",
        "measures={heat: {}, magnitude: {}, vendi: {kernels: [cosine]}}",
        "--json",
    )
    assert ended.code == 0, ended.err
    results = json.loads(ended.out)
    check_results(results)
    assert results["corpora"]["corpus"]["duplicates"] == 49
    assert [row["value"] for row in rows(results, measure="vendi")] == pytest.approx([1] * 5)
    [area] = rows(results, score="area")
    assert area["value"] is None
    assert area["reason"]


def test_hostile_names_stay_in_the_folder(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    ended = latentscale("run", job(name="../../<script>alert(1)</script>"))
    assert ended.code == 0, ended.err
    assert len(list((tmp_path / "jobs").glob("script-alert-1-script-*/results.json"))) == 1
    report = next((tmp_path / "jobs").glob("*/report.html")).read_text()
    assert "<script>alert(1)" not in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Usage"),
        (["run", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["walk"], "no such command 'walk'"),
    ],
)
def test_bad_usage(latentscale: Command, arguments: list[str], message: str) -> None:
    ended = latentscale(*arguments)
    assert ended.code == 2
    assert message in ended.err + ended.out
    assert "Traceback" not in ended.err


def test_missing_corpus_is_named(job: Callable[..., Path], latentscale: Command) -> None:
    ended = latentscale("run", job(corpus="/nowhere/at-all.npy"))
    assert ended.code == 2
    assert "/nowhere/at-all.npy" in ended.err.strip().splitlines()[-1]


def finished(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err
    results: dict[str, Any] = json.loads(ended.out)
    check_results(results)
    return results


def test_damage_found_while_collecting_is_mended(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    config = job()
    before = finished(latentscale("run", config, "--json"))
    [folder] = (tmp_path / "jobs").glob("toy-job-*")
    for name in ("heat-corpus/*/*/trace.npy", "geomca/*/*/n_corpus.npy"):
        [path] = folder.glob(f"stages/{name}")
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(bytes(content))
    (folder / "results.json").unlink()
    ended = latentscale("run", config, "--json")
    assert timeless(finished(ended)) == timeless(before)
    assert "heat-corpus" in ended.err
    assert "differs from its checksum" in ended.err


def test_scales_from_a_finished_job(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    finished(latentscale("run", job(), "--json"))
    [first] = (tmp_path / "jobs").glob("toy-job-*")
    reusable = json.loads((first / "results.json").read_text())["measures"]
    swapped = job(
        corpus=str(tmp_path / "reference.npy"),
        reference=str(tmp_path / "corpus.npy"),
        output=str(tmp_path / "other"),
    )
    kernels = "measures.vendi.kernels=[{name: rbf, bandwidth: 0.3}, {name: rbf, bandwidth: median}]"
    arguments = ("run", swapped, "-o", kernels, "--json", "-o", f"scales_from={first}")
    found = finished(latentscale(*arguments))["measures"]
    assert found["geomca"]["epsilon"] == reusable["geomca"]["epsilon"]
    assert found["geomca"]["percentile"] is None
    assert found["magnitude"]["corpus"]["scales"] == reusable["magnitude"]["corpus"]["scales"]
    median = next(e["bandwidth"] for e in reusable["vendi"]["corpus"] if e["kernel"] == "rbf")
    assert {entry["bandwidth"] for entry in found["vendi"]["corpus"]} == {0.3, median}

    for override, missing in (
        ("measures.magnitude.metric=manhattan", "t_cut"),
        ("scales_from=/nowhere", "results.json"),
    ):
        ended = latentscale(*arguments, "-o", override)
        assert ended.code == 2
        assert missing in ended.err.strip().splitlines()[-1]


def test_identity_counts_lent_scales_not_their_place(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    finished(latentscale("run", job(), "--json"))
    [first] = (tmp_path / "jobs").glob("toy-job-*")
    moved = tmp_path / "moved"
    shutil.copytree(first, moved)
    config = job(output=str(tmp_path / "other"))
    ids = {
        finished(latentscale("run", config, "-o", f"scales_from={place}", "--json"))["job"]["id"]
        for place in (first, moved)
    }
    assert len(ids) == 1


def test_strangers_below_the_output_are_left_alone(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    for name in ("notes", "file-as-stages", "odd-plan"):
        (tmp_path / "jobs" / name).mkdir(parents=True)
    (tmp_path / "jobs" / "file-as-stages" / "stages").write_text("x")
    (tmp_path / "jobs" / "odd-plan" / "plan.json").write_text("[]")
    finished(latentscale("run", job(), "--json"))


def test_the_index_of_another_user_ends_no_job(
    latentscale: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = ObjectStore.write

    def refused(store: ObjectStore, key: str, data: bytes, **options: bool) -> None:
        if key.startswith(".index/"):
            raise BadInput(f"{store.locate(key)}: permission denied; choose another place")
        write(store, key, data, **options)

    monkeypatch.setattr(ObjectStore, "write", refused)
    np.save(tmp_path / "v.npy", np.eye(40, 5, dtype=np.float32))
    output = ("--output", tmp_path / "jobs", "--measures", "spectrum", "-o", "cluster.kind=serial")
    ended = latentscale("run", tmp_path / "v.npy", *output)
    assert ended.code == 0, ended.err
    assert not (tmp_path / "jobs" / ".index").exists()


def test_no_secret_is_stored() -> None:
    secret = "s3://KEY:SECRET@bucket/path?token=TOKEN"
    config = JobConfig(name="a", corpus=secret, reference=secret, output=secret, scales_from=secret)
    frozen = frozen_config(config)
    assert not re.search(b"KEY|SECRET|TOKEN", frozen)
    assert frozen.count(b"s3://bucket/path") == 4


def test_identical_rows_end_no_other_measure(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    np.save(tmp_path / "same.npy", np.ones((50, 12), dtype="f4"))
    same = str(tmp_path / "same.npy")
    results = finished(latentscale("run", job(corpus=same, reference=same), "--json"))
    assert results["measures"]["geomca"] is None
    assert results["measures"]["geomca_reason"]
    for row in rows(results, measure="geomca") + rows(results, kernel="rbf median"):
        assert row["value"] is None
        assert row["reason"]
    assert [row["value"] for row in rows(results, kernel="cosine")] == [1.0] * 10
    assert rows(results, score="imd")[0]["value"] < 0.02


def test_a_recall_that_is_missed_twice_ends_the_job(
    job: Callable[..., Path], latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from latentscale.neighbours.exact import Neighbours

    calls = []

    def poor(points: Any, k: int, **rest: Any) -> Neighbours:
        calls.append(rest["rounds"])
        n = len(points)
        distances = np.full((n, k), 1e9)
        ties = np.zeros((n, k), dtype=np.uint64)
        return Neighbours((np.arange(n)[:, None] + np.arange(1, k + 1)) % n, distances, ties)

    monkeypatch.setattr("latentscale_pipeline.measures.shared.neighbours.search.search_rows", poor)
    ended = latentscale("run", job(reference="null"), "-o", "measures={heat: {neighbours: cells}}")
    assert ended.code == 2
    line = ended.err.strip().splitlines()[-1]
    assert (
        "stage neighbours-again-corpus, finalising: recall is certified at 0.0000 and 0.0000 "
        in line
    )
    assert "only, with overlaps of 1 and 1" in line, "of a single cell there is no second"
    assert "run the same command again" not in line
    assert calls == [1, 3], "searched once, and once again with more rounds"


def test_cells_are_certified_exactly_when_all_rows_are_looked_at(
    job: Callable[..., Path], latentscale: Command
) -> None:
    measures = "measures={heat: {neighbours: cells, recall: 0.99}}"
    results = finished(latentscale("run", job(reference="null"), "-o", measures, "--json"))
    recall = results["measures"]["heat"]["corpus"]["graph"]["recall"]
    assert recall == {"value": 1.0, "lower": 1.0, "upper": 1.0, "sampled": 200}
    assert results["measures"]["heat"]["corpus"]["bounds"] == "exact"


def test_a_missing_bucket_and_a_file_in_the_way(
    job: Callable[..., Path], latentscale: Command, tmp_path: Path, s3_url: str
) -> None:
    (tmp_path / "file").write_text("x")
    for output, message in (
        ("s3://no-such-bucket/jobs", "no such bucket or container"),
        (str(tmp_path / "file"), "a file is where a folder is needed"),
        ("''", "output is empty; give a value"),
    ):
        ended = latentscale("run", job(output=output))
        assert ended.code == 2, ended.err
        assert message in ended.err.strip().splitlines()[-1]


def test_a_defect_is_one_line_and_not_a_failed_gate(
    job: Callable[..., Path], latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentscale_pipeline.jobs.run.render_report", lambda *_: 1 / 0)
    ended = latentscale("run", job())
    assert ended.code == 3
    line = ended.err.strip().splitlines()[-1]
    assert line.startswith("latentscale: unexpected ZeroDivisionError: division by zero (a defect")
    log = Path(line.rpartition(" ")[2].rstrip(")"))
    assert "render_report" in log.read_text()
    log.unlink()
