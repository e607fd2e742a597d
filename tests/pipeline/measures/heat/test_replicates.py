"""Heat traces and IMD of random subsamples, and what they tell of fresh rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.stats import t as student_t

from latentscale.graphs.knn import symmetrise
from latentscale.graphs.laplacian import normalised_laplacian
from latentscale.heat.imd import imd_sampling_error
from latentscale.heat.supremum import IMD_TIMES
from latentscale.sampling.subsets import sampling_error
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.heat.report import _subsample_notes
from tests import oracles
from tests.support.jobs import run_here


def ring(n: int, generator: np.random.Generator, noise: float = 0.1) -> np.ndarray:
    angle = 2 * np.pi * generator.random(n)
    rows = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(n)])
    return (rows + noise * generator.normal(size=rows.shape)).astype("f4")


def spectrum_of(rows: np.ndarray) -> np.ndarray:
    near = cKDTree(rows.astype(float)).query(rows.astype(float), 6)[1][:, 1:]
    laplacian = normalised_laplacian(symmetrise(near)).toarray()
    return np.maximum(np.linalg.eigvalsh(laplacian), 0)


def dense_trace(rows: np.ndarray, times: np.ndarray) -> np.ndarray:
    return np.exp(-np.outer(times, spectrum_of(rows))).mean(axis=1)


def run(folder: Path, replicates: dict[str, Any], **rest: Any) -> Any:
    config = {
        "name": "subsampled",
        "corpus": str(folder / "corpus.zarr"),
        "output": str(folder / "jobs"),
        "sampling": {"method": "none"},
        "measures": {"heat": {"times": {"count": 6}}},
        "cluster": {"kind": "serial"},
        "replicates": replicates,
        **rest,
    }
    (folder / "job.yaml").write_text(json.dumps(config))
    return run_here(folder / "job.yaml", keep=True)


def put(folder: Path, name: str, rows: np.ndarray) -> Corpus:
    np.save(folder / f"{name}.npy", rows)
    return ingest([str(folder / f"{name}.npy")], str(folder / f"{name}.zarr"), shard_bytes=4000)


def test_subsamples_are_traced_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentscale_pipeline.measures.shared.shard_blocks.BLOCK_BYTES", 8000)
    generator = np.random.default_rng(5)
    rows = {"corpus": ring(900, generator), "reference": ring(900, generator, noise=0.4)}
    for role, vectors in rows.items():
        put(tmp_path, role, vectors)
    finished = run(tmp_path, {"count": 6, "rows": 300}, reference=str(tmp_path / "reference.zarr"))
    heat = finished.results.document()["measures"]["heat"]
    times = np.array(heat["corpus"]["times"])
    store = finished.store
    traces: dict[str, list[np.ndarray]] = {role: [] for role in rows}
    at_imd_times: dict[str, list[np.ndarray]] = {role: [] for role in rows}
    distances = []
    for number in range(6):
        spectra = {}
        for role, vectors in rows.items():
            drawn = drawn_rows(Path(store.url), role, number)
            assert drawn.shape == (300, 3)
            assert len(np.unique(drawn, axis=0)) == 300
            known = {row.tobytes() for row in vectors}
            assert all(row.tobytes() in known for row in drawn)
            spectra[role] = spectrum_of(drawn)
            for at, found in ((times, traces), (IMD_TIMES, at_imd_times)):
                found[role].append(np.exp(-np.outer(at, spectra[role])).mean(axis=1))
        distances.append(oracles.imd_of_spectra(spectra["corpus"], spectra["reference"])[0])
    found = heat["replicates"]
    assert (found["count"], found["rows"], found["level"]) == (6, 300, 0.99)
    for role in rows:
        np.testing.assert_allclose(found[role]["mean"], np.mean(traces[role], axis=0), rtol=1e-9)
    spread = np.std(distances, ddof=1)
    reach = student_t.ppf(0.995, 5) * spread / np.sqrt(6)
    assert found["imd"]["mean"] == pytest.approx(np.mean(distances), rel=1e-9)
    assert found["imd"]["lower"] == pytest.approx(np.mean(distances) - reach, rel=1e-6)
    assert found["imd"]["upper"] == pytest.approx(np.mean(distances) + reach, rel=1e-6)
    errors = {
        (row["score"], row["of"]): row["sampling_error"]
        for row in finished.results.document()["scores"]
    }
    weight = np.exp(-2 * (IMD_TIMES + 1 / IMD_TIMES))
    shares = {"corpus": 300 / 600, "reference": 300 / 600}
    variance = sum(
        np.var(at_imd_times[role], axis=0, ddof=1) * share for role, share in shares.items()
    )
    few = student_t.ppf(0.975, 5) / 1.959964
    expected = few * (weight * np.sqrt(variance)).max()
    assert errors["imd", "pair"] == pytest.approx(expected, rel=1e-6)
    imd = heat["imd"]
    assert imd["differs"] == (imd["lower"] > 1.96 * expected)
    at_one = int(np.argmin(np.abs(np.log(times))))
    deviation = np.std(traces["corpus"], axis=0, ddof=1)[at_one]
    expected = few * deviation * np.sqrt(300 / 600)
    assert errors["heat_trace", "corpus"] == pytest.approx(expected, rel=1e-6)


def test_corpora_of_different_sizes_are_not_called_different(tmp_path: Path) -> None:
    """Two samples of one normal distribution: the trace depends on the number of rows."""
    generator = np.random.default_rng(1)
    for role, n in (("corpus", 300), ("reference", 2000)):
        put(tmp_path, role, generator.normal(size=(n, 3)))
    finished = run(tmp_path, {"count": 6, "rows": 100}, reference=str(tmp_path / "reference.zarr"))
    assert "differs" not in finished.results.document()["measures"]["heat"]["imd"]
    heat = finished.results.part("heat")
    assert heat is not None
    assert _subsample_notes(heat)[0].startswith("The two corpora differ in their numbers of rows")


def test_sampling_errors_grow_with_the_units_of_a_trace(tmp_path: Path) -> None:
    put(tmp_path, "corpus", ring(1500, np.random.default_rng(5)))
    found = {}
    for normalization in ("empty", "none"):
        heat = {"times": {"count": 6}, "normalization": normalization}
        finished = run(tmp_path, {"count": 4, "rows": 300}, measures={"heat": heat})
        [row] = [r for r in finished.results.document()["scores"] if r["score"] == "heat_trace"]
        found[normalization] = row["sampling_error"] / row["value"]
    # In units of the trace they say the same.
    assert found["none"] == pytest.approx(found["empty"], rel=1e-6)


def drawn_rows(job: Path, role: str, number: int) -> np.ndarray:
    """Read a subsample from the files of its parts alone."""
    found = []
    for marker in sorted(job.glob(f"stages/draws-{role}/*/part-*.json")):
        described = json.loads(marker.read_text())["objects"]["rows"]
        if str(number) in described["sections"]:
            start, stop, _ = described["sections"][str(number)]
            data = (job / described["key"]).read_bytes()[start:stop]
            (job / "section.npy").write_bytes(data)
            found.append(np.load(job / "section.npy"))
    return np.concatenate(found)


def test_the_sampling_error_is_that_of_fresh_rows() -> None:
    """From subsets of 100 of one sample of 400, against the spread over fresh samples of 400."""
    times = np.array([1.0])
    fresh, stated = [], []
    for seed in range(30):
        generator = np.random.default_rng(seed)
        rows = ring(400, generator)
        fresh.append(dense_trace(rows, times)[0])
        subsets = [rows[generator.choice(400, 100, replace=False)] for _ in range(20)]
        traces = np.array([dense_trace(subset, times) for subset in subsets])
        stated.append(sampling_error(traces, 100, 400)[0])
    assert 0.7 < np.median(stated) / np.std(fresh, ddof=1) < 1.4


def test_samples_of_one_source_are_rarely_called_different() -> None:
    times, weight = IMD_TIMES, np.exp(-2 * (IMD_TIMES + 1 / IMD_TIMES))
    called = {0.1: 0, 0.0: 0}
    for seed in range(20):
        generator = np.random.default_rng(seed)
        first = ring(400, generator)
        for noise in called:
            both = (first, ring(400, generator, noise))
            errors = []
            for rows in both:
                subsets = [rows[generator.choice(400, 100, replace=False)] for _ in range(12)]
                of_subsets = np.array([dense_trace(subset, times) for subset in subsets])
                errors.append(sampling_error(of_subsets, 100, 400))
            traces = [dense_trace(rows, times) for rows in both]
            distance = (weight * np.abs(traces[0] - traces[1])).max()
            called[noise] += bool(distance > 1.96 * imd_sampling_error(errors))
    assert called[0.1] <= 2
    assert called[0.0] >= 18, "a curve isn't a tube"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            251,
            "corpus: replicates.rows is 251; set it above heat.k = 5 and to at most half ",
        ),
        (5, "corpus: replicates.rows is 5; set it above heat.k = 5"),
    ],
)
def test_subsamples_of_no_use_are_refused(tmp_path: Path, rows: int, message: str) -> None:
    put(tmp_path, "corpus", ring(500, np.random.default_rng(1)))
    with pytest.raises(BadInput, match=message):
        run(tmp_path, {"count": 3, "rows": rows})
    with pytest.raises(BadInput, match="rows needs a count of at least 2"):
        run(tmp_path, {"rows": 100})
