"""What a declared score becomes."""

import pytest

from latentscale.estimate import Estimate
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "radius",
    {"mean": ScoreDefinition("Mean radius", "Its mean.", unit="distance", better="low")},
)


def test_a_score_has_what_its_definition_says() -> None:
    estimate = Estimate(2.0, 1.5, 2.5, "certified", "sums")
    score = SCORES["mean"].score(estimate, "reference", sampling_error=0.1)
    assert score.document() == {
        "measure": "radius",
        "of": "reference",
        "score": "mean",
        "value": 2.0,
        "lower": 1.5,
        "upper": 2.5,
        "bounds": "certified",
        "unit": "distance",
        "better": "low",
        "sampling_error": 0.1,
    }


def test_settings_may_decide_its_unit_and_why_it_is_missing() -> None:
    score = SCORES["mean"].score(None, "pair", unit="miles", size_dependent=False, reason="no rows")
    assert (score.value, score.unit, score.reason) == (None, "miles", "no rows")
    assert not score.size_dependent


@pytest.mark.parametrize("name", MEASURES)
def test_definitions_know_their_measure_and_name(name: str) -> None:
    for score, definition in MEASURES[name].report.scores.items():
        assert (definition.measure, definition.name) == (name, score)
        assert definition.better in ("high", "low", "none")
        exchanged = definition.exchanged
        assert not exchanged or exchanged in MEASURES[name].report.scores
