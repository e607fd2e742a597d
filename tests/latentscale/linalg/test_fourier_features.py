"""Random Fourier features: their values, and the kernels they approximate."""

import numpy as np
import pytest

from latentscale.linalg.fourier_features import draw_frequencies, fourier_features


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_they_are_cosines_and_sines_in_double_precision_up_to_rounding(scale: float) -> None:
    generator = np.random.default_rng(0)
    rows, origin = generator.normal(size=(50, 7)) * scale, generator.normal(size=7)
    frequencies = generator.normal(size=(7, 12))
    angles = (rows - origin) @ frequencies
    first, second = np.split(angles, 2, axis=1)
    true = np.hstack([np.cos(first), np.sin(first), np.cos(second), np.sin(second)])
    found = fourier_features(rows, origin, frequencies)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, true, atol=2e-7)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_inner_products_are_the_kernel_on_average(kernel: str) -> None:
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(2, 1, 5)) * 0.4
    count = 20_000
    frequencies = draw_frequencies(kernel, 1.5, 5, count, generator)  # type: ignore[arg-type]
    features = [fourier_features(row, np.ones(5), frequencies)[0] for row in (x, y)]
    distance = float(np.linalg.norm(x - y)) / 1.5
    true = np.exp(-(distance**2) / 2) if kernel == "rbf" else np.exp(-distance)
    assert np.dot(*features) / count == pytest.approx(true, abs=4 / np.sqrt(2 * count))
