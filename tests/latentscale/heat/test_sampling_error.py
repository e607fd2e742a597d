"""The sampling error of a heat trace, from samples of fewer rows, covers that of fresh samples."""

import numpy as np
import pytest

from latentscale.sampling.fresh_samples import Cuts, error_of_average, mean_of_samples
from tests.oracles import heat_trace
from tests.support.coverage import assert_covers

TIMES = np.array([0.1, 1.0])
K = 5


def clusters(rng, n):
    """Return rows of ten clusters, 2 % of which are far from all."""
    centres = np.random.default_rng(1).normal(size=(10, 16)) * 3.0
    rows = centres[rng.integers(10, size=n)] + rng.normal(size=(n, 16)) * 0.6
    rows[rng.random(n) < 0.02] += 20.0
    return rows


def normal(rng, n):
    return rng.normal(size=(n, 4))


@pytest.mark.parametrize(
    ("n", "rows", "samples"), [(300, 50, 80), pytest.param(1000, 200, 200, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("draw", [clusters, normal])
def test_errors_cover_fresh_samples(draw, n: int, rows: int, samples: int) -> None:
    traces, errors = [], []
    for seed in range(samples):
        rng = np.random.default_rng([seed, n])
        corpus = draw(rng, n)
        per_order = n // rows
        orders = [rng.permutation(corpus) for _ in range(-(-10 // per_order))]
        parts = [order[k * rows :][:rows] for order in orders for k in range(per_order)][:10]
        full, rest = divmod(10, per_order)
        cuts = Cuts(rows, n, [per_order] * full + [rest] * (rest > 0))
        found = [
            mean_of_samples(values, [cuts])
            for values in np.array([heat_trace(part, K, TIMES) for part in parts]).T
        ]
        errors.append([error_of_average(one.variance, one.freedom, rows, n) for one in found])
        traces.append(heat_trace(corpus, K, TIMES))
    assert_covers(np.array(traces), np.array(errors))
