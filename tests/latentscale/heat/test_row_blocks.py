"""Heat traces by blocks of rows on graphs with a hub, whose spectrum is known in closed form."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from latentscale.graphs.laplacian import exact_moments, normalised_laplacian, product_work
from latentscale.heat.laplacian_blocks import block_moments, first_moments
from latentscale.heat.row_blocks import (
    FIRST_COMPANION,
    RowSums,
    TraceByRows,
    TraceSettings,
    multiply_block,
    orthogonalise_block,
)
from latentscale.heat.trace import (
    COMPANIONS,
    HeatTrace,
    estimate_heat_trace,
    moments_in_budget,
)
from latentscale.linalg.bounds import norm_bound
from latentscale.linalg.random_vectors import hashed_vectors

RIM = 300
TIMES = np.geomspace(0.1, 10, 8)
SEEDS = 100


def wheel() -> csr_array:
    """Normalised Laplacian of a ring whose vertices are all joined with a hub."""
    adjacency = np.zeros((RIM + 1, RIM + 1))
    ring = np.arange(RIM)
    adjacency[ring, (ring + 1) % RIM] = adjacency[ring, RIM] = 1.0
    return normalised_laplacian(csr_array(np.maximum(adjacency, adjacency.T)))


def wheel_trace() -> np.ndarray:
    """Trace per vertex from the eigenvalues 0, 4/3 and 1 - 2/3 cos 2πj/m, j = 1 … m - 1."""
    rim = 1.0 - 2.0 / 3.0 * np.cos(2 * np.pi * np.arange(1, RIM) / RIM)
    values = np.concatenate([[0.0, 4.0 / 3.0], rim])
    return np.exp(-np.multiply.outer(TIMES, values)).sum(axis=1) / (RIM + 1)


def trace_by_rows(
    laplacian: csr_array, seed: int, *, exact: bool, block: int = 128, probes: int | None = 8
) -> tuple[HeatTrace, TraceByRows]:
    """Run the passes of a trace in memory, block by block."""
    n = laplacian.shape[0]
    settings = TraceSettings(
        n, norm_bound(laplacian), 10, probes, 1e-3, "rademacher", "moments", exact
    )
    trace = TraceByRows.start(settings, TIMES, np.random.default_rng(seed))
    vector = rest = product = before = np.empty((n, 0))
    while (request := trace.request) is not None:
        sums = []
        if request.phase == "multiply":
            if request.step == 0:
                vector = request.start_vectors(n, 0, n)
            else:
                vector, before = rest * request.scale, vector
            product = np.empty_like(vector)
        else:
            rest = np.empty_like(vector)
        for start in range(0, n, block):
            rows = slice(start, start + block)
            if request.phase == "multiply":
                earlier = before[rows] if request.step else None
                product[rows], found = multiply_block(
                    request, laplacian[rows], vector, vector[rows], earlier
                )
                moments = {
                    0: np.empty(0),
                    3: first_moments(laplacian[rows], start),
                    5: block_moments(laplacian[rows], start, np.arange(n), laplacian),
                }
                sums.append(RowSums(found.shares, found.squares, moments[request.moments].tolist()))
            else:
                scaled, rest[rows], found = orthogonalise_block(
                    request, vector[rows], product[rows]
                )
                vector[rows] = scaled
                sums.append(found)
        trace = trace.advance(RowSums.total(sums))
    return trace.outcome, trace


def test_a_hub_makes_the_exact_moments_dear() -> None:
    laplacian = wheel()
    assert product_work(laplacian) == (RIM + 1) ** 2 + 16 * RIM
    assert moments_in_budget(10.0**10, 10)
    assert not moments_in_budget(1.01 * 10.0**10, 10)
    assert moments_in_budget(1.01 * 10.0**10, 10**8)
    assert not moments_in_budget(product_work(laplacian), RIM + 1, budget=9e4)


def test_companions_estimate_the_moments() -> None:
    laplacian = wheel()
    _, trace = trace_by_rows(laplacian, 0, exact=False, probes=64)
    assert trace.companions.shape == (64 * COMPANIONS, 2)
    moments = exact_moments(laplacian)
    np.testing.assert_allclose(trace.moments, [*moments[:3], 0.0, 0.0], rtol=1e-12)
    error = trace.companions.std(axis=0) / np.sqrt(len(trace.companions))
    assert (np.abs(trace.companions.mean(axis=0) - moments[3:] / (RIM + 1)) < 4 * error).all()
    # By their definition, of the vectors in the first batch of companions.
    vector = hashed_vectors(
        "rademacher", trace.seed, 0, RIM + 1, range(FIRST_COMPANION, FIRST_COMPANION + 16)
    )
    once = laplacian @ vector / np.sqrt(RIM + 1)
    twice = laplacian @ once
    np.testing.assert_allclose(trace.companions[:16, 0], (once * twice).sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(trace.companions[:16, 1], (twice * twice).sum(axis=0), rtol=1e-10)


@pytest.mark.parametrize("route", ["in memory", "by rows"])
def test_an_interval_with_estimated_moments_covers(route: str) -> None:
    laplacian, truth = wheel(), wheel_trace()

    def trace(seed: int) -> HeatTrace:
        if route == "by rows":
            return trace_by_rows(laplacian, seed, exact=False, block=RIM + 1)[0]
        return estimate_heat_trace(
            laplacian, TIMES, steps=10, probes=8, generator=np.random.default_rng(seed),
            moments_budget=0,
        )  # fmt: skip

    heats = [trace(seed) for seed in range(SEEDS)]
    covered = np.mean([(h.lower <= truth) & (truth <= h.upper) for h in heats], axis=0)
    assert covered.min() >= 0.9, covered
    spread = np.sqrt(np.mean([(heat.trace - truth) ** 2 for heat in heats], axis=0))
    promised = np.sqrt(np.mean([heat.standard_error**2 for heat in heats], axis=0))
    # At late times some estimates are below the least that a trace can be.
    free = np.min([heat.trace for heat in heats], axis=0) > 1.0 / (RIM + 1)
    assert free.tolist() == [True] * 6 + [False] * 2
    np.testing.assert_allclose(promised[free], spread[free], rtol=0.35)
    assert (promised > 0.7 * spread).all()


def test_blocks_change_nothing_and_exact_moments_know_more() -> None:
    laplacian, truth = wheel(), wheel_trace()
    whole, _ = trace_by_rows(laplacian, 1, exact=False, block=RIM + 1)
    parts, _ = trace_by_rows(laplacian, 1, exact=False, block=50)
    np.testing.assert_allclose(parts.trace, whole.trace, rtol=1e-10)
    np.testing.assert_allclose(parts.upper, whole.upper, rtol=1e-9)
    exact, trace = trace_by_rows(laplacian, 1, exact=True)
    assert trace.companions.shape == (0, 2)
    assert ((exact.lower <= truth) & (truth <= exact.upper)).all()
    assert exact.standard_error[0] < 0.1 * whole.standard_error[0]


def test_companions_follow_every_doubling() -> None:
    heat, trace = trace_by_rows(wheel(), 2, exact=False, probes=None)
    assert heat.probes > 4
    assert len(trace.companions) == COMPANIONS * heat.probes
    truth = wheel_trace()
    assert (np.abs(heat.trace - truth) <= 1.5 * (heat.upper - heat.lower)).all()
