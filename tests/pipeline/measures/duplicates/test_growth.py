"""Shares of rows in corpora of different sizes, compared: no alarm because one has grown."""

import numpy as np
import pytest

from latentscale_pipeline.measures.duplicates.collect import counts_between
from latentscale_pipeline.measures.duplicates.results import DuplicatesResults, RowsOfCorpus


def found(rows: int, near: int) -> DuplicatesResults:
    corpus = RowsOfCorpus(rows=rows, exact_duplicates=0, near_duplicates=near)
    return DuplicatesResults(metric="cosine", within=0.05, corpus=corpus)


@pytest.mark.parametrize(("rows", "growth", "pairs"), [(1000, 3, 2), (1000, 10, 2), (300, 10, 1)])
def test_near_duplicates_of_a_corpus_that_has_grown(rows: int, growth: int, pairs: float) -> None:
    """Pairs of near rows are as many as Poisson numbers, whose mean grows with the square."""
    generator, p = np.random.default_rng(0), []
    for _ in range(400):
        before, after = generator.poisson([pairs, pairs * growth**2])
        compared = counts_between(
            found(rows * growth, 2 * int(after)), found(rows, 2 * int(before)), float(growth)
        )
        [near] = [each for each in compared if each.score == "near-duplicates"]
        p.append(near.expected.expectation.p)
    assert np.mean(np.array(p) < 0.05) <= 0.05
    assert np.mean(np.array(p) < 0.001) <= 0.005


def test_many_more_near_duplicates_than_growth_makes_are_found() -> None:
    compared = counts_between(found(3000, 600), found(1000, 4), 3.0)
    [near] = [each for each in compared if each.score == "near-duplicates"]
    assert near.expected.expectation.p < 1e-6
