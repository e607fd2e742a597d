"""Effective dimensions equal their published formulas, and corrections find those of the source."""

import math
from typing import Any

import numpy as np
import pytest

from latentscale.linalg.moments import Moments, merge_row_moments, row_moments
from latentscale.sampling.jackknife import draw_groups, leave_each_out
from latentscale.spectrum.ranks import (
    corrected_participation_ratio,
    corrected_rank,
    effective_rank,
    first_share,
    iso_score,
    participation_ratio,
    singular_shares,
    variance_shares,
)

SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(10, 50))]


def drawn(seed: int) -> np.ndarray:
    """Rows of any size, some of low rank, some far from the origin, some of tiny length."""
    generator = np.random.default_rng(seed)
    n, d = int(generator.integers(2, 120)), int(generator.integers(2, 40))
    rank = int(generator.integers(1, d + 1))
    rows = generator.normal(size=(n, rank)) @ generator.normal(size=(rank, d))
    rows *= 10.0 ** generator.integers(-5, 6)
    return (rows + generator.integers(0, 2) * 30.0 * np.abs(rows).max()).astype("f4")


def entropy_rank(shares: np.ndarray) -> float:
    positive = shares[shares > 0]
    return math.exp(-(positive * np.log(positive)).sum())


def oracle(rows: np.ndarray) -> dict[str, float]:
    """The authors' formulas from singular values of the rows."""
    rows = rows.astype(float)
    centred = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    variances = centred[: len(rows) - 1] ** 2
    variances[variances < 1e-24 * variances[0]] = 0.0
    share = variances / variances.sum()
    whole = np.linalg.svd(rows, compute_uv=False)
    return {
        "effective rank": entropy_rank(share),
        "participation ratio": variances.sum() ** 2 / (variances**2).sum(),
        "RankMe": entropy_rank(whole / whole.sum()),
        "first": share[0],
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_they_equal_the_published_formulas(seed: int) -> None:
    rows = drawn(seed)
    moments = row_moments(rows)
    shares = variance_shares(moments)
    found = {
        "effective rank": effective_rank(shares),
        "participation ratio": participation_ratio(shares),
        "RankMe": effective_rank(singular_shares(moments)),
        "first": first_share(shares),
    }
    for name, value in oracle(rows).items():
        assert found[name].lower <= value <= found[name].upper, name
        assert found[name].upper - found[name].lower < 1e-3 * value, name


def iso_score_by_its_steps(rows: np.ndarray) -> float:
    """Algorithm 1 of Rudman et al."""
    d = rows.shape[1]
    rotation = np.linalg.eigh(np.cov(rows.T))[1]
    diagonal = np.cov((rows @ rotation).T).diagonal()
    scaled = math.sqrt(d) * diagonal / np.linalg.norm(diagonal)
    defect = np.linalg.norm(scaled - 1.0) / math.sqrt(2.0 * (d - math.sqrt(d)))
    dimensions = (d - defect**2 * (d - math.sqrt(d))) ** 2 / d**2
    return float((d * dimensions - 1.0) / (d - 1.0))


@pytest.mark.parametrize("seed", range(5))
def test_iso_score_equals_its_steps(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(300, 12)) * generator.uniform(0.1, 3.0, size=12)
    ratio = participation_ratio(variance_shares(row_moments(rows)))
    assert iso_score(ratio, 12).value == pytest.approx(iso_score_by_its_steps(rows), rel=1e-10)


def test_rotations_scales_and_shifts_change_only_what_they_should() -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(500, 8)) * np.arange(1, 9)
    rotation = np.linalg.qr(generator.normal(size=(8, 8)))[0]
    plain = effective_rank(variance_shares(row_moments(rows))).value
    for moved in (rows @ rotation, 7.0 * rows, rows + 5.0):
        found = effective_rank(variance_shares(row_moments(moved))).value
        assert found == pytest.approx(plain, rel=1e-9)
    assert effective_rank(singular_shares(row_moments(rows + 50.0))).value < 0.7 * plain


def test_known_spectra() -> None:
    corners = np.concatenate([np.eye(6), -np.eye(6)])
    shares = variance_shares(row_moments(corners))
    assert effective_rank(shares).value == pytest.approx(6.0)
    assert participation_ratio(shares).value == pytest.approx(6.0)
    assert iso_score(participation_ratio(shares), 6).value == pytest.approx(1.0)
    line = np.outer(np.arange(5.0), np.ones(4))
    shares = variance_shares(row_moments(line))
    assert effective_rank(shares).value == pytest.approx(1.0)
    assert iso_score(participation_ratio(shares), 4).value == pytest.approx(0.0, abs=1e-12)


def test_what_has_no_spectrum_says_why() -> None:
    with pytest.raises(ValueError, match="only one row"):
        variance_shares(row_moments(np.ones((1, 3))))
    with pytest.raises(ValueError, match="all rows are equal"):
        variance_shares(row_moments(np.full((9, 3), 0.1)))
    with pytest.raises(ValueError, match="all rows are zero"):
        singular_shares(row_moments(np.zeros((9, 3))))
    with pytest.raises(ValueError, match="one dimension"):
        iso_score(participation_ratio(variance_shares(row_moments(np.eye(3)[:, :1]))), 1)


def test_rows_too_far_to_tell_apart_have_a_wide_bracket() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 4)) + 1e16
    found = effective_rank(variance_shares(row_moments(rows)))
    assert (found.lower, found.upper) == pytest.approx((1.0, 4.0))


# --- corrections and sampling errors ------------------------------------------------------------


def power_law(generator: np.random.Generator, n: int) -> np.ndarray:
    return generator.normal(size=(n, 48)) / np.sqrt(np.arange(1, 49))


def clusters(generator: np.random.Generator, n: int) -> np.ndarray:
    centres = 2.0 * np.random.default_rng(7).normal(size=(10, 48))
    lengths = np.exp(0.5 * generator.normal(size=(n, 1)))
    return centres[generator.integers(10, size=n)] + generator.normal(size=(n, 48)) * lengths


def scored(rows: np.ndarray, generator: np.random.Generator) -> dict[str, Any]:
    group = draw_groups(len(rows), generator)
    groups = [row_moments(rows[group == number]) for number in range(20)]
    shares = variance_shares(merge_row_moments(groups))
    others = [variance_shares(each) for each in leave_each_out(groups, merge_row_moments)]
    whole = merge_row_moments(groups)
    twice = [variance_shares(merge_row_moments([whole, each])) for each in groups]
    (ranks, ratios), (ranks_again, ratios_again) = (
        [
            np.array([score(each).value for each in some])
            for score in (effective_rank, participation_ratio)
        ]
        for some in (others, twice)
    )
    rank, ratio = effective_rank(shares).value, participation_ratio(shares).value
    return {
        "rank": (rank, corrected_rank(rank, ranks, ranks_again, 48)),
        "ratio": (ratio, corrected_participation_ratio(ratio, ratios, ratios_again, 48)),
    }


@pytest.mark.parametrize("source", [power_law, clusters])
@pytest.mark.parametrize("tries", [50, pytest.param(200, marks=pytest.mark.full)])
def test_corrections_find_the_source_and_errors_cover_it(source: Any, tries: int) -> None:
    """From 1000 rows the mean is right, and 95 % intervals cover 90 to 99 %."""
    truth = variance_shares(row_moments(source(np.random.default_rng(99), 300_000)))
    expected = {"rank": effective_rank(truth).value, "ratio": participation_ratio(truth).value}
    found = [
        scored(source(np.random.default_rng([1, seed]), 1000), np.random.default_rng([2, seed]))
        for seed in range(tries)
    ]
    for name, value in expected.items():
        plain = np.mean([each[name][0] for each in found])
        corrected = np.array([each[name][1].estimate.value for each in found])
        errors = np.array([each[name][1].sampling_error for each in found])
        chance = 3.0 * corrected.std() / math.sqrt(tries)
        assert abs(corrected.mean() - value) < max(chance, 0.2 * abs(plain - value))
        share = np.mean(np.abs(corrected - value) < 1.96 * errors)
        assert (0.9 <= share <= 0.99) if tries > 100 else share >= 0.84


@pytest.mark.parametrize(("n", "d", "most"), [(45, 48, 2.2), (60, 10, 1.4)])
def test_errors_are_not_too_small_where_the_correction_is_large(
    n: int, d: int, most: float
) -> None:
    """A third of the real one, where the slope of the score as it is was taken."""
    found = []
    for seed in range(40):
        rows = np.zeros((n, 48))
        rows[:, :d] = np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(0.2, 2, d)
        found.append(scored(rows, np.random.default_rng([2, seed])))
    for name in ("rank", "ratio"):
        errors = np.array([each[name][1].sampling_error for each in found])
        real = np.std([each[name][1].estimate.value for each in found], ddof=1)
        assert 0.85 < np.sqrt(np.mean(errors**2)) / real < most


def test_errors_at_the_ceiling_are_those_beside_it() -> None:
    left_out, twice = np.array([59.0, 61.0] * 10), np.array([63.0] * 20)
    errors = [
        corrected_participation_ratio(62.0, left_out, twice, most).sampling_error
        for most in (64.0, 64.001)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=1e-3)


def heavy_tails(generator: np.random.Generator, n: int) -> np.ndarray:
    lengths = np.sqrt(generator.chisquare(4, size=(n, 1)) / 4)
    return generator.normal(size=(n, 48)) / np.arange(1, 49) / lengths


def steep(generator: np.random.Generator, n: int) -> np.ndarray:
    """Return rows whose correction is about zero, while it varies with the groups."""
    return generator.normal(size=(n, 48)) / np.arange(1, 49) ** 2


@pytest.mark.parametrize("source", [power_law, clusters, heavy_tails, steep])
def test_other_groups_stay_within_the_bracket(source: Any) -> None:
    """Whatever the spectrum; the bracket is wide only if some rows are far longer than others."""
    rows = source(np.random.default_rng(5), 400)
    found = [scored(rows, np.random.default_rng(seed)) for seed in range(20)]
    for name in ("rank", "ratio"):
        brackets = [each[name][1].estimate for each in found]
        values = np.array([each.value for each in brackets])
        inside = [np.mean((each.lower <= values) & (values <= each.upper)) for each in brackets]
        assert np.mean(inside) >= 0.95
        assert (
            np.median([each.upper - each.lower for each in brackets])
            <= (60 if source is clusters else 25) * values.std()
        )


def test_each_part_is_left_out_once() -> None:
    parts = [row_moments(np.random.default_rng(i).normal(size=(i + 2, 3))) for i in range(7)]
    for number, found in enumerate(leave_each_out(parts, merge_row_moments)):
        expected: Moments = merge_row_moments(parts[:number] + parts[number + 1 :])
        assert found.count == expected.count
        np.testing.assert_allclose(found.scatter, expected.scatter, rtol=1e-12)
