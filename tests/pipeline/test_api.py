"""Measures of arrays: the numbers of a job, nothing written, and what a notebook shows."""

import importlib
import json
import pkgutil
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import latentscale
from latentscale_pipeline.api import computation, findings
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.measures.heat import plan as heat_plan
from latentscale_pipeline.storage.objects import ObjectStore
from tests.support.jobs import results_of, run_here


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
    """The results of a job on the same rows."""
    folder: Path = tmp_path_factory.mktemp("api")
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
        "sampling": {"method": "none"},
        "cluster": {"kind": "serial"},
    }
    (folder / "job.yaml").write_text(json.dumps(document))
    return run_here(folder / "job.yaml").results.document()


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
    assert [found[order] for order in found] == list(found.scores.values())
    assert len(found) == len(entries)
    with pytest.raises(KeyError, match="order 7 wasn't computed"):
        found[7]


def test_the_magnitude_function_is_that_of_a_job(rows: np.ndarray, job: dict) -> None:
    found = latentscale.magnitude_function(rows, scales=6, seed=5)
    theirs = job["measures"]["magnitude"]["corpus"]
    assert found.scales.tolist() == theirs["scales"]
    assert found.value.tolist() == theirs["value"]
    assert [estimate.lower for estimate in found.estimates] == theirs["lower"]
    assert found.convergence_scale.value == theirs["convergence_scale"]
    assert found.area.value == theirs["area"]
    assert found.trapezium_error == theirs["area_trapezium_error"] > 0.0
    assert found.weights.sum() == pytest.approx(found.value[-1], rel=1e-12)


def test_equal_rows_have_a_magnitude_and_no_convergence_scale() -> None:
    found = latentscale.magnitude_function(np.ones((10, 3)), scales=[0, 1, 2])
    assert found.value.tolist() == [1.0, 1.0, 1.0]
    assert (found.points, found.convergence_scale) == (1, None)
    assert found.area.value == pytest.approx(2.0)
    assert "convergence scale  none" in repr(found)
    with pytest.raises(ValueError, match="one distinct point"):
        latentscale.magnitude_function(np.ones((10, 3)), scales=3)


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
    found = latentscale.geomca_scores(shared + 0.001, reference, epsilon=0.5, delta=0.1)
    assert found.component_count == 2
    assert found.scores["precision_rows"].value == 1.0
    assert found.scores["recall_rows"].value == 0.5
    assert (found.membership == 0).all()
    assert found.reference_membership.tolist() == [0] * 40 + [1] * 40


def test_a_two_sample_test_is_that_of_a_job_and_of_the_definition() -> None:
    generator = np.random.default_rng(2)
    rows, others = generator.normal(size=(40, 3)), generator.normal(1.0, size=(30, 3))
    found = latentscale.mmd_test(rows, others, kernel="linear")
    exact = [each.astype("f4").astype(float) for each in (rows, others)]
    noise = sum(each.var(axis=0, ddof=1).sum() / len(each) for each in exact)
    between = ((exact[0].mean(axis=0) - exact[1].mean(axis=0)) ** 2).sum()
    assert found.discrepancy.value == pytest.approx(between - noise, rel=1e-9)
    assert (found.p, found.rows, found.bandwidth) == (1e-4, (40, 30), None)
    assert float(found.discrepancy) > 3 * found.sampling_error
    rbf = latentscale.mmd_test(rows, others)
    assert rbf.bandwidth is not None
    assert str(rbf).startswith("Two-sample test of 40 and 30 rows, rbf kernel of bandwidth ")
    assert rbf.to_pandas()["p"].tolist() == [rbf.p]


def test_geomca_is_that_of_a_job(rows: np.ndarray, shifted: np.ndarray, job: dict) -> None:
    theirs = job["measures"]["geomca"]
    found = latentscale.geomca_scores(rows, shifted, epsilon=theirs["epsilon"])
    for name, estimate in found.scores.items():
        assert estimate.value == theirs[name]
    assert list(found.components) == theirs["components"]


def test_geomca_of_random_rows_names_them(rows: np.ndarray, shifted: np.ndarray) -> None:
    found = latentscale.geomca_scores(rows, shifted, budget=2e4)
    drawn = np.flatnonzero(found.membership >= 0)
    assert len(found.membership) == len(rows) > len(drawn) == found.sizes["corpus"]
    assert len(found.reference_membership) == len(shifted)
    assert f" of {len(rows):,} rows against " in found.title
    precision = found.scores["precision"]
    assert (precision.lower, precision.upper, precision.bounds) == (0.0, 1.0, "estimate")


def test_geomca_takes_epsilon_from_the_reference_as_a_job_does(
    rows: np.ndarray, shifted: np.ndarray, tmp_path: Path
) -> None:
    # float64 is stored as float32, whoever stores it
    corpus, reference = rows.astype("f8") * 1.1, shifted.astype("f8") * 1.1
    np.save(tmp_path / "corpus.npy", corpus)
    np.save(tmp_path / "reference.npy", reference)
    document = {
        "name": "geomca",
        "corpus": str(tmp_path / "corpus.npy"),
        "reference": str(tmp_path / "reference.npy"),
        "output": str(tmp_path / "jobs"),
        "measures": {"geomca": {"percentile": 5.0, "eta_q": 0.1}},
        "cluster": {"kind": "serial"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    run_here(tmp_path / "job.yaml")
    results = results_of(tmp_path / "jobs")
    theirs = results["measures"]["geomca"]
    found = latentscale.geomca_scores(corpus, reference, percentile=5.0, eta_q=0.1)
    assert found.epsilon == theirs["epsilon"]
    assert {name: estimate.value for name, estimate in found.scores.items()} == {
        name: theirs[name] for name in found.scores
    }
    [folder] = (tmp_path / "jobs").glob("geomca-*")
    for role, ours in (("corpus", found.membership), ("reference", found.reference_membership)):
        path = results["arrays"][f"geomca/membership/{role}"]
        assert np.load(folder / path).tolist() == ours.tolist()


def test_weighted_scores_are_those_of_a_job(rows: np.ndarray, tmp_path: Path) -> None:
    weights = np.random.default_rng(2).random(len(rows))
    np.save(tmp_path / "rows.npy", rows.astype("f2"))
    np.save(tmp_path / "weights.npy", weights)
    ingest(
        [str(tmp_path / "rows.npy")],
        str(tmp_path / "corpus.zarr"),
        weights=str(tmp_path / "weights.npy"),
    )
    document = {
        "name": "weighted",
        "corpus": str(tmp_path / "corpus.zarr"),
        "output": str(tmp_path / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine", "laplacian"]}},
        "cluster": {"kind": "serial"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    run_here(tmp_path / "job.yaml")
    for entry in results_of(tmp_path / "jobs")["measures"]["vendi"]["corpus"]:
        found = latentscale.vendi_score(
            rows.astype("f2"), kernel=entry["kernel"], weights=weights, orders=[1.0, 2.0]
        )
        if entry["order"] in found.scores:
            own = found[entry["order"]]
            assert (own.value, own.lower, own.upper) == bracket(entry)


def test_masked_and_complex_weights_are_refused(rows: np.ndarray) -> None:
    masked = np.ma.MaskedArray(np.ones(len(rows)), mask=np.arange(len(rows)) < 3)
    with pytest.raises(ValueError, match="weights: some are masked; fill them in"):
        latentscale.vendi_score(rows, weights=masked)
    with pytest.raises(ValueError, match="weights: they are complex; give real numbers"):
        latentscale.vendi_score(rows, weights=np.ones(len(rows), complex))


def test_rows_without_weight_move_no_bandwidth() -> None:
    rng = np.random.default_rng(8)
    rows = np.concatenate([rng.normal(size=(60, 5)), 100 * rng.normal(size=(90, 5))])
    weights = np.repeat([1.0, 0.0], [60, 90])
    weighted = latentscale.vendi_score(rows, kernel="rbf", weights=weights)
    alone = latentscale.vendi_score(rows[:60], kernel="rbf")
    assert weighted.bandwidth == pytest.approx(alone.bandwidth, rel=1e-9)
    assert weighted[1].value == pytest.approx(alone[1].value, rel=1e-9)


def test_weights_count_a_row_as_often() -> None:
    rows = np.eye(3)
    found = latentscale.vendi_score(rows, weights=[0.5, 0.25, 0.25], orders=[1, 2])
    assert found[1].value == pytest.approx(2.0**1.5, rel=1e-12)
    assert found[2].value == pytest.approx(8 / 3, rel=1e-12)


def test_a_call_writes_nothing_and_leaves_the_rows_alone(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, stored = rows.copy(), ObjectStore("memory://").keys()
    rows.flags.writeable = False
    try:
        latentscale.magnitude_function(rows, scales=4)
        latentscale.imd(rows, rows[:300], probes=8)
    finally:
        rows.flags.writeable = True
    assert list(tmp_path.iterdir()) == []
    assert ObjectStore("memory://").keys() == stored
    assert (rows == before).all()


def test_rows_of_the_stored_type_are_not_copied(rows: np.ndarray) -> None:
    assert computation.hold_rows(rows, "rows").held["vectors"] is rows


EYE = np.eye(4)


@pytest.mark.parametrize(
    ("function", "arrays", "options", "message"),
    [
        ("vendi_score", [np.zeros(5)], {}, r"rows must be a two-dimensional numeric .*\(5,\)"),
        ("vendi_score", [np.zeros((0, 3))], {}, r"rows must be .* at least one row; .*\(0, 3\)"),
        (
            "vendi_score",
            [np.full((5, 2), np.nan)],
            {},
            "^rows: row 0 holds NaN; leave such rows out, as rows",
        ),
        (
            "vendi_score",
            [EYE * 1e300],
            {},
            "^rows: row 0 holds a value too large for float32; scale all rows, or leave ",
        ),
        (
            "heat_trace",
            [np.random.default_rng(0).normal(size=(60, 4)) * 1e-45],
            {},
            "^rows: row 0 is too small for float32; scale all rows, or leave ",
        ),
        ("vendi_score", [EYE * 1e-300], {}, "^rows: row 0 is too small for float32; scale all"),
        (
            "vendi_score",
            [np.zeros((4, 2))],
            {},
            "^rows: 4 of 4 rows are zero, and the cosine kernel",
        ),
        ("vendi_score", [EYE], {"kernel": "cosin"}, "^kernel: 'cosin' is not a kernel; it can be"),
        ("vendi_score", [EYE], {"kernel": "os:system"}, "^os:system is a function, which only"),
        ("vendi_score", [EYE], {"bandwidth": 1.0}, "^kernel: the cosine kernel has no bandwidth$"),
        ("vendi_score", [EYE], {"orders": [-1.0]}, "^orders must be at least 0$"),
        ("vendi_score", [EYE], {"seed": -1}, "^seed must be at least 0$"),
        ("vendi_score", [EYE], {"weights": [1.0]}, r"^weights: shape \(1,\) for 4 rows; give one"),
        ("vendi_score", [EYE], {"weights": [1, 1, -1, 1]}, r"^weights: row 2: weight -1\.0; "),
        ("vendi_score", [EYE], {"weights": [0, 0, 0, 0]}, "^weights: all are zero; at least one"),
        ("vendi_score", [EYE], {"weights": [1e308] * 4}, r"weight 1e\+308; .* at most 1e\+200$"),
        (
            "heat_trace",
            [np.arange(20.0).reshape(10, 2) ** 2],
            {"times": (1.0, 1e4, 5), "normalization": "er"},
            "the er normalization has no number at time 10000; set the last of times below it$",
        ),
        (
            "vendi_score",
            [EYE],
            {"kernel": "rbf", "method": "nystrom", "weights": [1, 1, 1, 2]},
            "^rows: method nystrom doesn't support weights; use exact or lanczos, or give",
        ),
        (
            "vendi_score",
            [EYE],
            {"kernel": "rbf", "method": "exact", "budget": 3},
            r"^rows: the rbf kernel of 4 rows takes .* pairs and budget is 3\.0e\+00; set",
        ),
        ("magnitude_function", [EYE], {"scales": 8.0}, r"^scales must be a whole number of .*8\.0"),
        ("heat_trace", [EYE[:1]], {}, "^rows: k is 5 and there is one row; a graph needs two"),
        ("magnitude_function", [EYE], {"scales": [2.0, 1.0]}, "^scales: a list of scales needs"),
        (
            "magnitude_function",
            [EYE],
            {"method": "cg", "budget": 3},
            r"row pairs and budget is 3\.0e\+00; set budget to 2\.4e\+02, or use fewer rows$",
        ),
        ("heat_trace", [EYE], {"k": 9}, "^rows: k is 9 and there are 4 rows; set k to 3 or less$"),
        (
            "heat_trace",
            [EYE],
            {"times": (2.0, 1.0, 8)},
            "^the first of times must be below the last$",
        ),
        (
            "heat_trace",
            [EYE],
            {"times": (1.0, 1.0 + 1e-13, 9)},
            "^times: start and stop are too near",
        ),
        (
            "imd",
            [np.eye(9), EYE[:2]],
            {},
            "^reference: k is 5 and there are 2 rows; set k to 1 or less$",
        ),
        ("imd", [EYE, np.full((2, 4), np.inf)], {}, "^reference: row 0 holds infinity; leave "),
        ("imd", [EYE[0], EYE], {}, "^corpus must be a two-dimensional numeric array"),
        ("mmd_test", [EYE, EYE], {}, "^the corpus has fewer than 20 rows$"),
        ("mmd_test", [EYE, EYE], {"kernel": "sigmoid"}, "^kernel"),
        (
            "mmd_test",
            [EYE, EYE],
            {"kernel": "linear", "bandwidth": 3},
            "^bandwidth: it is that of the rbf",
        ),
        (
            "geomca_scores",
            [EYE, EYE[:, :3]],
            {},
            "^geomca needs equal dimensions; the corpus has 4 and the reference 3$",
        ),
        (
            "vendi_score",
            [EYE],
            {"kernel": "rbf", "bandwidth": [1.0, 2.0]},
            "^bandwidth must be a number or 'median'; call once for each of several$",
        ),
        (
            "heat_trace",
            [np.eye(40)],
            {"times": (0.1, 10.0)},
            "^times must be the first and last time, and their number$",
        ),
        ("heat_trace", [np.eye(40)], {"times": (1, 2, 1)}, "^the number of times must be at le"),
        ("heat_trace", [np.eye(40)], {"times": (0, 1, 5)}, "^the first of times must be great"),
        ("heat_trace", [np.eye(40)], {"times": (2, 1, 5)}, "^the first of times must be below t"),
        ("vendi_score", [EYE], {"orders": float("nan")}, "^orders must be a number, not NaN$"),
        ("vendi_score", [[[1, 2], [3]]], {}, "^rows: rows 0 and 1 have 2 and 1 numbers; give a"),
        ("vendi_score", [scipy.sparse.csr_array(EYE)], {}, r"; give a dense array, by rows.toar"),
        ("vendi_score", [EYE], {"orders": [[1, 2]]}, r"^orders must be numbers, not \[\[1, 2\]\]$"),
        ("vendi_score", [EYE], {"orders": "abc"}, r"^orders must be numbers, not \['abc'\]$"),
        ("magnitude_function", [EYE], {"scales": None}, "^scales must be numbers, not None$"),
        ("vendi_score", [[[1, [2, 3]], [1, 2]]], {}, "^rows: the lists in it differ in length; "),
        ("vendi_score", [EYE], {"orders": [[1], [1, 2]]}, "^orders must be numbers, not"),
        ("vendi_score", [EYE], {"weights": [[1], [1, 2]]}, "^weights: they aren't numbers; give"),
        ("vendi_score", [EYE], {"weights": iter([1, 2])}, "^weights: they aren't numbers; give"),
        ("vendi_score", [EYE], {"orders": [1, True]}, r"^orders must be numbers, not \[1, True\]$"),
        ("imd", [EYE, None], {}, "^imd compares with a reference; give one$"),
    ],
)
def test_bad_input_is_one_line_in_the_words_of_the_caller(
    function: str, arrays: list[np.ndarray], options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        getattr(latentscale, function)(*arrays, **options)
    said = str(caught.value)
    assert "\n" not in said
    for word in ("/", "measures.", "budget.", "cluster.", "heat.", "stage", "arguments"):
        assert word not in said


def test_options_of_all_kinds_of_numbers_are_taken() -> None:
    rows = np.random.default_rng(5).normal(size=(30, 3))
    found = latentscale.vendi_score(rows, orders=(0.5, 0.50000049, 1 / 3, 1e6))
    assert found[0.5].value > found[0.50000049].value
    assert found[1 / 3].value > found[0.5].value > found[1e6].value
    for order in (0.5, np.array(0.5)):
        assert latentscale.vendi_score(rows, orders=order)[0.5] == found[0.5]
    assert len(latentscale.magnitude_function(rows, scales=np.int64(5)).scales) == 5
    with pytest.raises(ValueError, match=r"must lie between 1/2 and 1, got 0\.5"):
        latentscale.magnitude_function(rows[:2], target=0.5)


def test_a_tensor_that_can_not_be_read_is_refused_in_a_line() -> None:
    class Tensor:
        def __array__(self, *arguments: Any, **options: Any) -> Any:
            raise TypeError("can't convert cuda:0 device type tensor to numpy.\nUse Tensor.cpu()")

    with pytest.raises(ValueError, match=r"cuda:0 .*; give a NumPy array, as rows\.detach\(\)"):
        latentscale.vendi_score(Tensor())


@pytest.mark.parametrize(("sizes", "seeds"), [((501, 501), 5), ((50, 6000), 2)])
def test_a_two_sample_test_of_random_rows_has_an_interval_of_all(
    sizes: tuple[int, int], seeds: int
) -> None:
    x, y = (np.random.default_rng([6, n]).normal(size=(n, 3)).astype("f4") for n in sizes)
    product = np.concatenate([x, y]).astype(float)
    product = product @ product.T
    m, n = sizes
    first, second, both = product[:m, :m], product[m:, m:], product[:m, m:]
    truth = (first.sum() - np.trace(first)) / (m * (m - 1)) - 2.0 * both.mean()
    truth += (second.sum() - np.trace(second)) / (n * (n - 1))
    held = 0
    for seed in range(seeds):
        estimate = latentscale.mmd_test(x, y, kernel="linear", seed=seed).discrepancy
        assert estimate.bounds == "interval95"
        held += estimate.lower <= truth <= estimate.upper
    # Of 5 intervals that cover with probability 0.95 fewer than 4 do once in 44, of 2 none in 400.
    assert held >= seeds - 1


def test_a_missed_recall_is_told_in_arguments() -> None:
    said = computation._in_arguments(
        "stage neighbours-corpus, combining: 3 rows have fewer than heat.k = 5 neighbours in their "
        "cells; raise heat.overlap, lower heat.k, or use neighbours: exact",
        "heat",
        compares=False,
    )
    assert said == (
        "3 rows have fewer than k = 5 neighbours in their cells; lower k, or use neighbours='exact'"
    )


def test_a_defect_shows_its_traceback(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("for a test")

    monkeypatch.setattr("latentscale_pipeline.measures.vendi.tasks.moment_spectrum", fail)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: for a test"):
        latentscale.vendi_score(rows)


def test_a_notebook_shows_numbers_with_brackets(rows: np.ndarray) -> None:
    found = latentscale.magnitude_function(rows, scales=4)
    assert repr(found).splitlines()[0] == "Magnitude of 700 rows (700 distinct)"
    shown = found._repr_html_()
    table, svg = shown[: shown.index("<svg")], shown[shown.index("<svg") :]
    assert f"{found.area.value:.6g}" in table
    root = ElementTree.fromstring(svg)
    [band] = (
        path.attrib["d"]
        for path in root.iter("{http://www.w3.org/2000/svg}path")
        if path.get("fill") == "currentColor"
    )
    assert len(band.split()) == 8


def test_findings_are_tables(rows: np.ndarray, shifted: np.ndarray) -> None:
    vendi = latentscale.vendi_score(rows)
    table = vendi.to_pandas()
    assert list(table.columns) == [
        "order", "value", "lower", "upper", "bounds", "method", "standard_error"
    ]  # fmt: skip
    assert dict(zip(table["order"], table["value"], strict=True)) == {
        order: found.value for order, found in vendi.scores.items()
    }
    magnitude = latentscale.magnitude_function(rows, scales=4)
    assert magnitude.to_pandas()["value"].tolist() == magnitude.value.tolist()
    assert magnitude.to_pandas()["scale"].tolist() == magnitude.scales.tolist()
    heat = latentscale.heat_trace(rows)
    np.testing.assert_array_equal(
        heat.to_pandas()[["time", "value", "lower", "upper"]],
        np.stack([heat.times, heat.trace, heat.lower, heat.upper], axis=1),
    )
    imd = latentscale.imd(rows, shifted)
    assert [row["value"] for row in imd.records()] == [
        imd.distance.value,
        imd.unnormalized.value,
    ]
    geomca = latentscale.geomca_scores(rows, shifted)
    assert {row["score"]: row["value"] for row in geomca.records()} == {
        name: found.value for name, found in geomca.scores.items()
    }


def test_scores_are_drawn_by_order(rows: np.ndarray) -> None:
    found = latentscale.vendi_score(rows, orders=["inf", 1, 0.5])
    shown = found._repr_html_()
    root = ElementTree.fromstring(shown[shown.index("<svg") :])
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in {"0.5", "1", "∞"}] == ["0.5", "1", "∞"]


def test_texts_are_escaped() -> None:
    assert "<script>" not in findings.draw_table("<script>", [("<script>", "<script>")])


def test_the_functions_are_found_by_name_alone() -> None:
    assert {"vendi_score", "imd", "geomca_scores"} <= set(dir(latentscale))
    with pytest.raises(AttributeError, match="no attribute 'vendi_of'"):
        getattr(importlib.import_module("latentscale"), "vendi_of")  # noqa: B009
    assert latentscale.geomca_scores.__name__ == "geomca_scores"
    assert "corpus, reference" in (latentscale.geomca_scores.__doc__ or "")


def test_no_function_has_the_name_of_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(latentscale.__path__)}
    assert not modules & set(latentscale.__all__)


def test_a_long_computation_says_how_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    latentscale.heat_trace(rows, k=3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(computation, "LONG_SECONDS", 0.0)
    latentscale.heat_trace(rows, k=3)
    assert re.fullmatch(r"heat: about \d+\.\d s\n", capsys.readouterr().err)


def test_more_tasks_than_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(2100.0)[:, None]
    one = latentscale.heat_trace(rows, k=2, probes=16)
    monkeypatch.setattr(heat_plan, "TASK_OPERATIONS", 1e5)
    monkeypatch.setattr(heat_plan, "TASK_PROBES", 1)
    many = latentscale.heat_trace(rows, k=2, probes=16)
    assert many.probes == 16
    assert (many.lower <= one.upper).all()
    assert (many.upper >= one.lower).all()


def kinds_of_rows() -> np.ndarray:
    """Twenty kinds, one of them with most of the rows."""
    generator = np.random.default_rng(4)
    sizes = [300] + [4] * 19
    centres = np.repeat(generator.normal(size=(20, 12)), sizes, axis=0)
    return generator.permutation(centres + 0.01 * generator.normal(size=centres.shape))


@pytest.mark.parametrize("cover", [False, True])
def test_diverse_rows_retain_what_is_said(cover: bool) -> None:
    rows = kinds_of_rows()
    found = latentscale.diverse_rows(rows, 20, cover=cover)
    kept = rows[found.numbers]
    assert kept.shape == (20, 12)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, kept)]
    cosines = unit[0] @ unit[1].T
    assert found.retained.radius == pytest.approx(1 - cosines.max(axis=1).min(), abs=1e-5)
    assert found.retained.radius < (0.01 if cover else found.by_random_rows.radius)
    assert found.retained.effective_number > 3 * found.by_random_rows.effective_number
    squares = np.square(unit[1] @ unit[1].T).sum()
    assert found.retained.effective_number == pytest.approx(400 / squares, rel=1e-5)
    assert repr(found).startswith("20 of 376 rows, and as many random ones\n")
    assert [row["rows"] for row in found.records()] == ["chosen", "random"]


def test_rows_without_direction_or_of_any_size_are_covered() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 5))
    plain = latentscale.diverse_rows(rows, 7, cover=True, metric="euclidean")
    for size in (1e30, 1e-30):
        sized = latentscale.diverse_rows(rows * size, 7, cover=True, metric="euclidean")
        assert sized.numbers.tolist() == plain.numbers.tolist()
        assert sized.retained.radius == pytest.approx(size * plain.retained.radius, rel=1e-5)
    rows[4] = 0.0
    assert (
        latentscale.diverse_rows(rows, 3, cover=True, metric="euclidean").retained.effective_number
        <= 3
    )
    none = latentscale.diverse_rows(np.zeros((10, 3)), 3, cover=True, metric="euclidean")
    assert np.isnan(none.retained.effective_number)
    assert "effective number  NaN" in repr(none)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"count": 500}, "rows: can't choose 500 rows of 376; ask for fewer"),
        ({"count": 0}, "count must be a whole number of at least 1, not 0"),
        ({"count": 2, "metric": "rbf"}, "metric must be one of cosine, euclidean, not 'rbf'"),
        ({"count": 2, "rows": np.zeros((5, 3))}, 'give cover=True and metric="euclidean"'),
        ({"count": 2, "rows": [1.0, 2.0]}, "rows"),
        ({"count": True}, "count must be a whole number of at least 1"),
        ({"count": 3, "seed": None}, "seed must be a whole number from 0, below"),
        ({"count": 3, "seed": -1}, "seed must be a whole number from 0, below"),
    ],
)
def test_rows_that_can_not_be_chosen(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        latentscale.diverse_rows(**{"rows": kinds_of_rows(), **arguments})


def test_findings_are_equal_if_all_their_numbers_are() -> None:
    rows = kinds_of_rows()
    one, other = (latentscale.magnitude_function(rows[:60], scales=3) for _ in range(2))
    assert one == other
    assert one != latentscale.magnitude_function(rows[:60], scales=4)
    assert one != latentscale.magnitude_function(rows[1:61], scales=3)
    assert latentscale.vendi_score(rows) == latentscale.vendi_score(rows)
    assert one != 3.0
    assert float(latentscale.Estimate.exact(np.float32(1.5), "definition")) == 1.5
