"""Results documents for the tests of everything that reads them.

``data/results_example.json`` holds the measures of scikit-learn's digits, classes 5 to 9 as corpus
and 0 to 4 as reference, computed by dense algebra; its job, locations, fingerprints, timings and
memory are made up, and some brackets are those of an iterative method.
"""

import copy
import json
from typing import Any

import jsonschema

from latentscale_pipeline.measures.finished_job import FinishedJob, read_results
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.results.schema import load_schema
from tests import DATA

EXAMPLE = DATA / "results_example.json"


def example_results() -> dict[str, Any]:
    """Return a complete document of a job with a reference."""
    results: dict[str, Any] = json.loads(EXAMPLE.read_text("utf-8"))
    return results


def read(document: dict[str, Any]) -> Results:
    """Return the results that a document holds."""
    return read_results(document, "results.json")


def finished_job(
    document: dict[str, Any], settings: dict[str, Any] | None, url: str
) -> FinishedJob:
    """Return the finished job of two documents."""
    return FinishedJob(url, read_results(document, f"{url}/results.json"), settings)


def without_reference(results: dict[str, Any]) -> dict[str, Any]:
    """Return what the same job would have found without its reference."""
    alone = copy.deepcopy(results)
    alone["corpora"]["reference"] = None
    alone["scores"] = [row for row in alone["scores"] if row["of"] == "corpus"]
    del alone["measures"]["geomca"]
    for measure in alone["measures"].values():
        del measure["reference"]
    del alone["measures"]["heat"]["imd"]
    alone["measures"]["magnitude"]["difference"] = None
    return alone


def check_results(results: dict[str, Any]) -> None:
    """Raise unless the document follows the shipped schema and is plain JSON.

    NaN and infinity are no JSON: they raise a ValueError, a wrong shape a ValidationError.
    """
    document = json.loads(json.dumps(results, allow_nan=False))
    errors = jsonschema.Draft202012Validator(load_schema()).iter_errors(document)
    worst = jsonschema.exceptions.best_match(errors)
    if worst is not None:
        raise worst
