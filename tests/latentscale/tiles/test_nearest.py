"""Parts of the search for nearest rows, against NumPy."""

import numpy as np
import pytest

from latentscale.tiles.host.nearest import _smallest


@pytest.mark.parametrize("n", [1, 2, 3, 5, 17, 4096])
def test_a_value_has_the_place_that_sorting_gives_it(n: int) -> None:
    rng = np.random.default_rng(n)
    drawn = rng.normal(size=n).astype("f4")
    kinds = [drawn, np.round(drawn), np.zeros_like(drawn), np.sort(drawn), np.sort(drawn)[::-1]]
    kinds.append(np.where(rng.random(n) < 0.3, np.float32(np.inf), drawn))
    for values in kinds:
        for place in {0, min(16, n - 1), n // 2, n - 1}:
            assert _smallest(values.copy(), place) == np.sort(values)[place]
