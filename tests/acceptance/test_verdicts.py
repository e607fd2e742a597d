"""The promises on verdicts and sampling errors, on few rows."""

import numpy as np

from tests.acceptance.sampling_errors import clusters, scores_of
from tests.acceptance.verdicts import decide, decide_between


def rows(n: int, seed: int) -> np.ndarray:
    return clusters(n, np.random.default_rng([8, seed]))


def test_a_source_is_told_from_another_and_not_from_itself() -> None:
    value, p = decide(rows(300, 1), rows(300, 2))
    assert value == "no_difference_found"
    assert min(p.values()) > 0.05
    many = rows(900, 3)
    value, p = decide(many[np.argsort(many[:, 0])[:300]], rows(300, 2))
    assert value == "differs"
    assert p["vendi vendi cosine 1"] < 0.05


def test_jobs_on_one_source_are_not_told_apart() -> None:
    value, p = decide_between(rows(300, 1), rows(300, 2), None)
    assert value == "no_difference_found"
    assert p["heat heat_trace"] > 0.05


def test_every_score_but_two_has_a_sampling_error() -> None:
    """The smallest clusters have fewer than 20 rows, and halves of most have."""
    found = scores_of(clusters, 300, 0)
    unknown = {name for name, (_, error, _) in found.items() if error is None}
    assert unknown == {"hubness hubness", "intrinsic_dimension MLE"}
