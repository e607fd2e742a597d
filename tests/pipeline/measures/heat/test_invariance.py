"""What heat trace and IMD do not depend on: the order of the rows, seeds, storage, times."""

import numpy as np
import pytest

import latentscale


def lattice(n: int = 400) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 4, (n, 3)).astype("f4")


def test_a_corpus_and_its_permutation_are_at_distance_zero() -> None:
    rows = lattice()
    first = latentscale.heat_trace(rows)
    assert first.graph["tied"] > 0.5
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(rows))
        distance = latentscale.imd(rows, rows[order], seed=seed).distance
        assert distance.bounds == "exact"
        assert distance.lower == 0.0
        assert distance.upper < 1e-13
        second = latentscale.heat_trace(rows[order], seed=seed)
        assert second.graph == first.graph
        np.testing.assert_allclose(second.trace, first.trace, rtol=1e-12)


def test_graphs_of_many_shards_and_tasks_are_those_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = lattice(900)
    whole = latentscale.heat_trace(rows)
    monkeypatch.setattr("latentscale_pipeline.measures.shared.neighbours.exact.QUERY_ROWS", 170)
    cut = latentscale.heat_trace(rows[::-1], seed=5)
    assert cut.graph == whole.graph
    overlapping = np.maximum(cut.lower, whole.lower) <= np.minimum(cut.upper, whole.upper)
    assert overlapping.mean() > 0.9


def test_neighbours_in_cells_break_ties_alike() -> None:
    rows = lattice(900)
    exact = latentscale.heat_trace(rows)
    cells = [
        latentscale.heat_trace(rows[order], neighbours="cells", seed=7).graph
        for order in (slice(None), slice(None, None, -1))
    ]
    for graph in cells:
        assert graph["tied"] == pytest.approx(exact.graph["tied"], abs=0.05)
        assert graph["edges"] == pytest.approx(exact.graph["edges"], rel=0.02)


def test_storage_does_not_matter() -> None:
    rows = lattice(300)
    first = latentscale.heat_trace(rows)
    for same in (
        rows.astype("f2"),
        rows.astype("f8"),
        np.where(rows == 0, -0.0, rows),
    ):
        np.testing.assert_allclose(latentscale.heat_trace(same).trace, first.trace, rtol=1e-12)


@pytest.mark.parametrize("n", [300, 700])
def test_imd_does_not_depend_on_the_times(n: int) -> None:
    generator = np.random.default_rng(1)
    pair = generator.normal(size=(n, 3)), generator.normal(size=(n, 5))
    found = [
        latentscale.imd(*pair, times=times, probes="auto" if n < 500 else 16).distance
        for times in ((0.1, 10.0, 2), (0.1, 10.0, 256), (0.1, 10.0, 5000), (2.0, 10.0, 32))
    ]
    for other in found[1:]:
        for field in ("value", "lower", "upper"):
            assert getattr(other, field) == pytest.approx(getattr(found[0], field), rel=1e-9)


def test_the_random_graph_needs_the_normalised_laplacian() -> None:
    with pytest.raises(ValueError, match="normalization er needs laplacian: normalized"):
        latentscale.heat_trace(lattice(50), normalization="er", laplacian="unnormalized")
