"""Brackets and invariances on nasty corpora; the full count is a promise of ``make test-full``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import latentscale
from latentscale.baselines.kernel_distance import kernel_distance
from latentscale.baselines.manifold_overlap import exact_overlap
from latentscale.estimate import Estimate
from latentscale.graphs.knn import symmetrise
from latentscale.graphs.laplacian import normalised_laplacian
from latentscale.heat.imd import imd_of_traces
from latentscale.heat.trace import dense_heat_trace
from latentscale.magnitude.function import magnitude_function
from latentscale.neighbours.exact import exact_neighbours
from latentscale.tiles.distances import as_points
from latentscale.vendi.scores import kernel_spectrum, moment_spectrum, vendi_score
from latentscale.vendi.second_moments import second_moment
from tests.acceptance.adversarial.cases import TIMES, cases_of
from tests.acceptance.adversarial.corpora import NASTY, draw_corpus
from tests.support.jobs import run_here

FULL = pytest.mark.full
SEEDS = [0, *(pytest.param(seed, marks=FULL) for seed in range(1, 20))]


@pytest.mark.parametrize("kind", NASTY)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_exact_or_certified_bracket_is_violated(kind: str, seed: int) -> None:
    violated = [str(case) for case in cases_of(kind, seed) if case.violated]
    assert not violated


def test_numbers_that_overflow_end_no_computation() -> None:
    assert not [str(case) for case in cases_of("a far row", 4) if case.violated]


def drawn(kind: str, seed: int) -> tuple[np.ndarray, np.random.Generator]:
    generator = np.random.default_rng([list(NASTY).index(kind), seed, 2])
    return draw_corpus(kind, generator, 24, 4), generator


def brackets_of(rows: np.ndarray, unit: float = 1.0) -> dict[str, tuple[float, float]]:
    """Brackets that neither the order of the rows nor that of the coordinates may change.

    Lengths are in multiples of a unit.
    """
    points, cosine = as_points(rows, "euclidean"), as_points(rows, "cosine")
    length = unit * 3.0
    spectra = {
        "rbf": kernel_spectrum(points, "rbf", length),
        "laplacian": kernel_spectrum(points, "laplacian", length),
        "cosine": kernel_spectrum(cosine, "cosine"),
        "moments": moment_spectrum(second_moment(rows), len(rows)),
    }
    found = {
        f"{name} {order}": vendi_score(spectrum, order)
        for name, spectrum in spectra.items()
        for order in (0.0, 0.1, 1.0, 2.0, np.inf)
    }
    magnitudes = magnitude_function(points, [0.3 / unit, 2.0 / unit], method="cholesky")
    found |= {f"magnitude {i}": estimate for i, estimate in enumerate(magnitudes.estimates)}
    return {name: (estimate.lower, estimate.upper) for name, estimate in found.items()}


def assert_they_meet(one: dict, other: dict) -> None:
    for name, (low, high) in one.items():
        assert low <= other[name][1], name
        assert other[name][0] <= high, name


@pytest.mark.parametrize("kind", NASTY)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_rows_and_coordinates_doesnt_matter(kind: str, seed: int) -> None:
    rows, generator = drawn(kind, seed)
    mixed = rows[generator.permutation(len(rows))]
    turned = mixed[:, generator.permutation(rows.shape[1])]
    turned *= generator.choice([-1.0, 1.0], size=rows.shape[1])
    unit = float(np.abs(rows).max())
    assert_they_meet(brackets_of(rows, unit), brackets_of(mixed, unit))
    assert_they_meet(brackets_of(rows, unit), brackets_of(turned, unit))


@pytest.mark.parametrize("kind", NASTY)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_unit_of_length_doesnt_matter(kind: str, seed: int) -> None:
    rows, generator = drawn(kind, seed)
    factor = 2.0 ** int(generator.integers(-20, 21))
    unit = float(np.abs(rows).max())
    assert_they_meet(brackets_of(rows, unit), brackets_of(factor * rows, factor * unit))


@pytest.mark.parametrize("kind", NASTY)
@pytest.mark.parametrize("seed", SEEDS)
def test_graphs_dont_depend_on_the_order_of_rows(kind: str, seed: int) -> None:
    rows, generator = drawn(kind, seed)
    traces = []
    for corpus in (rows, rows[generator.permutation(len(rows))]):
        graph = symmetrise(exact_neighbours(as_points(corpus, "euclidean"), 3).indices)
        traces.append(dense_heat_trace(normalised_laplacian(graph), TIMES))
    np.testing.assert_allclose(traces[0].trace, traces[1].trace, rtol=1e-12)
    found = [imd_of_traces(*traces, generator=np.random.default_rng(s)).estimate for s in (0, 1)]
    assert found[0] == found[1]
    assert found[0].lower == 0.0
    assert found[0].upper < 1e-12


@pytest.mark.parametrize("kind", NASTY)
def test_pairs_of_corpora_dont_depend_on_the_order_of_rows(kind: str) -> None:
    rows, generator = drawn(kind, 0)
    others = draw_corpus(kind, generator, 20, 4)
    mixed = others[generator.permutation(len(others))]
    ours = as_points(rows, "euclidean")
    one, other = (exact_overlap(ours, as_points(side, "euclidean"), 3) for side in (others, mixed))
    assert one == other
    first, second = (kernel_distance(rows, side) for side in (others, mixed))
    assert abs(first.value - second.value) <= first.rounding + second.rounding


@pytest.mark.parametrize("kind", NASTY)
def test_copies_of_rows_add_no_magnitude(kind: str) -> None:
    rows, generator = drawn(kind, 0)
    unit = float(np.abs(rows).max())
    copied = np.concatenate([rows, rows[generator.integers(len(rows), size=9)]])
    found = [
        magnitude_function(as_points(side, "euclidean"), [2.0 / unit]).estimates[0]
        for side in (rows, copied)
    ]
    assert found[0].value == pytest.approx(found[1].value, rel=1e-12)


@pytest.mark.parametrize("kind", ["a lattice", "duplicates", "half precision extremes"])
def test_jobs_and_storage_give_the_same(kind: str) -> None:
    rows, _ = drawn(kind, 0)
    rows = rows.astype(np.float16).astype(float)
    dense = kernel_spectrum(as_points(rows, "euclidean"), "rbf", 2.0)
    for dtype in (np.float16, np.float32):
        found = latentscale.vendi_score(rows.astype(dtype), kernel="rbf", bandwidth=2.0)
        for name, estimate in found.scores.items():
            ours = vendi_score(dense, float(name))
            assert (estimate.lower, estimate.upper) == pytest.approx(
                (ours.lower, ours.upper), rel=1e-12
            )


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "a far row" else FULL) for kind in NASTY]
)
def test_a_job_gives_the_brackets_of_arrays(kind: str, tmp_path: Path) -> None:
    generator = np.random.default_rng([list(NASTY).index(kind), 3])
    rows, others = (draw_corpus(kind, generator, n, 4).astype(np.float32) for n in (30, 26))
    unit = float(np.abs(rows.astype(float) - others[0].astype(float)).max()) or 1.0
    scales = [0.0, 0.3 / unit, 2.0 / unit]
    if len(rows) == 1 or not np.isfinite(scales).all():
        pytest.skip("there is no graph of one row, and no scale for these")
    folder = {"corpus": rows, "reference": others}
    for role, held in folder.items():
        np.save(tmp_path / f"{role}.npy", held)
    fields = {
        "name": "nasty",
        **{role: str(tmp_path / f"{role}.npy") for role in folder},
        "output": str(tmp_path / "jobs"),
        "measures": {
            "heat": {"times": {"start": 0.1, "stop": 10.0, "count": 16}},
            "geomca": {"epsilon": unit / 2},
            "magnitude": {"scales": scales},
            "vendi": {"kernels": [{"name": "rbf", "bandwidth": unit}], "orders": [0.5, 1, 2]},
        },
        "cluster": {"kind": "serial"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(fields))
    results = run_here(tmp_path / "job.yaml").results.document()
    found = {
        (row["of"], row["score"], row.get("order")): (row["value"], row["lower"], row["upper"])
        for row in results["scores"]
    }

    def assert_equal(of: str, score: str, order: str | None, estimate: Estimate) -> None:
        ours = (estimate.value, estimate.lower, estimate.upper)
        assert found[of, score, order] == pytest.approx(ours, rel=1e-12), (of, score, order)

    for role, held in folder.items():
        vendi = latentscale.vendi_score(held, kernel="rbf", bandwidth=unit, orders=(0.5, 1, 2))
        for name, estimate in vendi.scores.items():
            assert_equal(role, "vendi", name, estimate)
        function = latentscale.magnitude_function(held, scales=scales)
        theirs = results["measures"]["magnitude"][role]
        np.testing.assert_allclose(theirs["value"], function.value, rtol=1e-12)
        trace = latentscale.heat_trace(held, times=(0.1, 10.0, 16))
        np.testing.assert_allclose(results["measures"]["heat"][role]["trace"], trace.trace)
    assert_equal("pair", "imd", None, latentscale.imd(rows, others).distance)
    geomca = latentscale.geomca_scores(rows, others, epsilon=unit / 2)
    for name, estimate in geomca.scores.items():
        assert_equal("pair", name, None, estimate)
