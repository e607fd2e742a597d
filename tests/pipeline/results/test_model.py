"""One model: what is written is what was found, and what any version wrote is read."""

import json

import pytest

from latentscale_pipeline.config.section import validate
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.results_models import results_models
from latentscale_pipeline.results.model import Results, Score
from latentscale_pipeline.results.schema import load_schema, results_schema
from tests.support.results_documents import example_results, read


def test_the_shipped_schema_is_generated_from_the_model() -> None:
    made = results_schema(results_models())
    assert load_schema() == made, (
        "write it anew: python -m latentscale_pipeline.measures.results_models > "
        "pipeline/latentscale_pipeline/results/results.schema.json"
    )


def test_a_document_that_is_read_is_written_as_it_was() -> None:
    document = example_results()
    assert json.loads(read(document).dump()) == document


def test_names_of_later_versions_are_kept() -> None:
    document = example_results()
    document["scores"][0]["certainty"] = "great"
    document["job"]["mood"] = {"at": ["night"]}
    document["measures"]["later"] = {"anything": [1, None]}
    document["measures"]["heat"]["corpus"]["mood"] = 1
    document["measures"]["vendi"] = {"of_another": ["form"]}
    results = read(document)
    assert results.part("vendi") is results.part("later") is None
    assert json.loads(results.dump()) == document


def test_a_document_of_the_least_that_identifies_a_job_is_read() -> None:
    results = Results.model_validate(
        {"job": {"id": "a-1", "name": "a"}, "corpora": {}, "scores": []}
    )
    assert (results.job.version, results.job.finished, results.timings) == ("", None, [])


def test_what_does_not_apply_to_a_score_is_not_written() -> None:
    score = Score(
        measure="toy", of="corpus", score="size", value=2.0, lower=1.0, upper=2.0, bounds="exact"
    )
    assert score.model_copy(update={"label": "red"}).document() == {
        "measure": "toy",
        "of": "corpus",
        "score": "size",
        "value": 2.0,
        "lower": 1.0,
        "upper": 2.0,
        "bounds": "exact",
        "unit": "",
        "better": "none",
        "label": "red",
        "sampling_error": None,
    }
    again = score.model_copy(update={"kernel": None, "size_dependent": True})
    assert again.document() == score.document()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"upper": None}, "scores.0: a value needs its bracket, lower and upper"),
        ({"lower": 3.0, "upper": 2.0}, "scores.0: lower is above upper"),
        ({"of": "both"}, "scores.0.of must be 'corpus', 'reference' or 'pair'"),
    ],
)
def test_a_mistake_is_one_line(change: dict[str, object], message: str) -> None:
    document = example_results()
    document["scores"][0].update(change)
    with pytest.raises(BadInput) as told:
        validate(Results, document, "results.json", "")
    assert str(told.value) == f"results.json: {message}"
