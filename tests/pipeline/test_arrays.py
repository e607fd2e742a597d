"""Measures of arrays: the numbers of a job, and what a notebook shows."""

import importlib
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import latentscale
from latentscale_pipeline.arrays import drawing
from tests.jobs import results_of, run_command


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(6, 8))
    return (
        centres[generator.integers(6, size=700)] + 0.3 * generator.normal(size=(700, 8))
    ).astype("f4")


@pytest.fixture(scope="module")
def shifted(rows: np.ndarray) -> np.ndarray:
    return (rows[:600] + np.float32(0.2)).astype("f4")


@pytest.fixture(scope="module")
def job(rows: np.ndarray, shifted: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The results of a job on the same rows, from the command line."""
    folder: Path = tmp_path_factory.mktemp("arrays")
    np.save(folder / "rows.npy", rows)
    np.save(folder / "shifted.npy", shifted)
    document = {
        "name": "the same",
        "corpus": str(folder / "rows.npy"),
        "reference": str(folder / "shifted.npy"),
        "output": str(folder / "jobs"),
        "seed": 5,
        "scales_from": "corpus",
        "measures": {
            "heat": {"times": {"start": 0.1, "stop": 10, "count": 32}, "probes": 8},
            "geomca": {},
            "magnitude": {"scales": 6},
            "vendi": {"kernels": ["cosine", "rbf"]},
        },
        "cluster": {"kind": "serial"},
    }
    (folder / "job.yaml").write_text(json.dumps(document))
    ran = run_command("run", folder / "job.yaml", "--quiet")
    assert ran.returncode == 0, ran.stderr
    return results_of(folder / "jobs")


def bracket(found: dict) -> tuple[float, float, float]:
    return found["value"], found["lower"], found["upper"]


@pytest.mark.parametrize("kernel", ["cosine", "rbf"])
def test_vendi_scores_are_those_of_a_job(kernel: str, rows: np.ndarray, job: dict) -> None:
    found = latentscale.vendi_score(rows, kernel=kernel, seed=5)
    entries = [e for e in job["measures"]["vendi"]["corpus"] if e["kernel"] == kernel]
    assert list(found.scores) == [entry["order"] for entry in entries]
    for entry in entries:
        own = found[entry["order"]]
        assert (own.value, own.lower, own.upper) == bracket(entry)
        assert (own.bounds, own.method) == (entry["bounds"], entry["method"])
    assert found[1] == found["1"]
    assert found[float("inf")] == found["inf"]
    with pytest.raises(KeyError, match="order 7 wasn't asked for"):
        found[7]


def test_the_magnitude_function_is_that_of_a_job(rows: np.ndarray, job: dict) -> None:
    found = latentscale.magnitude_function(rows, scales=6, seed=5)
    theirs = job["measures"]["magnitude"]["corpus"]
    assert found.scales.tolist() == theirs["scales"]
    assert found.value.tolist() == theirs["value"]
    assert [estimate.lower for estimate in found.estimates] == theirs["lower"]
    assert found.convergence_scale.value == theirs["convergence_scale"]
    assert found.area.value == theirs["area"]
    assert found.weights.sum() == pytest.approx(found.value[-1], rel=1e-12)


def test_traces_and_imd_are_those_of_a_job(
    rows: np.ndarray, shifted: np.ndarray, job: dict
) -> None:
    times = (0.1, 10.0, 32)
    theirs = job["measures"]["heat"]
    trace = latentscale.heat_trace(rows, times=times, probes=8, seed=5)
    for name in ("times", "trace", "lower", "upper"):
        assert getattr(trace, name).tolist() == theirs["corpus"][name]
    assert trace.graph == theirs["corpus"]["graph"]
    apart = latentscale.imd(rows, shifted, times=times, probes=8, seed=5)
    assert (apart.distance.value, apart.distance.lower, apart.distance.upper) == bracket(
        theirs["imd"]
    )
    assert apart.time == theirs["imd"]["time"]
    assert apart.unnormalized.value == theirs["imd"]["unnormalized"]["value"]


def test_geomca_finds_two_clusters_and_one_without_a_partner() -> None:
    generator = np.random.default_rng(1)
    shared = generator.normal(scale=0.01, size=(40, 3))
    reference = np.concatenate([shared, shared + 5.0])
    found = latentscale.geomca(reference, shared + 0.001, epsilon=0.5, delta=0.1)
    assert found.component_count == 2
    assert found.scores["precision_rows"].value == 1.0
    assert found.scores["recall_rows"].value == 0.5
    assert (found.membership == 0).all()
    assert found.reference_membership.tolist() == [0] * 40 + [1] * 40


def test_geomca_is_that_of_a_job(rows: np.ndarray, shifted: np.ndarray, job: dict) -> None:
    theirs = job["measures"]["geomca"]
    found = latentscale.geomca(shifted, rows, epsilon=theirs["epsilon"])
    for name, estimate in found.scores.items():
        assert estimate.value == theirs[name]
    assert list(found.components) == theirs["components"]


def test_weights_count_a_row_as_often() -> None:
    rows = np.eye(3)
    found = latentscale.vendi_score(rows, weights=[0.5, 0.25, 0.25], orders=[1, 2])
    assert found[1].value == pytest.approx(2.0**1.5, rel=1e-12)
    assert found[2].value == pytest.approx(8 / 3, rel=1e-12)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (np.zeros(5), {}, r"rows must be numbers in two dimensions, got shape \(5,\)"),
        (np.full((5, 2), np.nan), {}, "corpus.npy"),
        (np.eye(4), {"kernel": "cosin"}, "cosin"),
        (np.eye(4), {"orders": [-1.0]}, "order"),
        (np.zeros((4, 2)), {}, "zero"),
    ],
)
def test_bad_input_is_one_line(rows: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        latentscale.vendi_score(rows, **options)
    assert "\n" not in str(caught.value)
    assert "/tmp" not in str(caught.value)


def test_a_notebook_shows_numbers_with_brackets(rows: np.ndarray) -> None:
    found = latentscale.magnitude_function(rows, scales=4)
    assert repr(found).splitlines()[0] == "Magnitude of 700 rows (700 distinct)"
    shown = found._repr_html_()
    table, svg = shown[: shown.index("<svg")], shown[shown.index("<svg") :]
    assert f"{found.area.value:.6g}" in table
    root = ElementTree.fromstring(svg)
    [line] = root.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(line.get("points").split()) == 4


def test_texts_are_escaped() -> None:
    assert "<script>" not in drawing.draw_table("<script>", [("<script>", "<script>")])


def test_only_what_was_announced_is_there() -> None:
    assert {"vendi_score", "imd"} <= set(dir(latentscale))
    with pytest.raises(AttributeError, match="no attribute 'vendi_of'"):
        getattr(importlib.import_module("latentscale"), "vendi_of")  # noqa: B009


def test_geomca_is_the_measure_and_the_module() -> None:
    from latentscale.geomca import estimate_epsilon

    assert latentscale.geomca.estimate_epsilon is estimate_epsilon
    assert callable(latentscale.geomca)
