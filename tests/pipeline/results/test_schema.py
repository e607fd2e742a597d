"""The shipped schema accepts what the contract allows and nothing else."""

import copy
import math
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from latentscale_pipeline.results.schema import RESULTS_SCHEMA, load_schema
from tests.support.results_documents import check_results, example_results, without_reference

Results = dict[str, Any]
Change = Callable[[Results], Any]


def changed(change: Change) -> Results:
    results = copy.deepcopy(example_results())
    change(results)
    return results


def test_the_schema_is_valid_and_names_this_version() -> None:
    schema = load_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"]["const"] == RESULTS_SCHEMA == "latentscale.results/1"


def test_a_complete_document_is_accepted() -> None:
    check_results(example_results())


def test_a_document_without_reference_is_accepted() -> None:
    check_results(without_reference(example_results()))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "put",
    [
        lambda results, number: results["scores"][0].update(value=number),
        lambda results, number: results["measures"]["heat"]["corpus"]["trace"].append(number),
        lambda results, number: results["measures"].update(further={"deep": [{"in": number}]}),
    ],
)
def test_nan_and_infinity_are_refused(put: Callable[[Results, float], None], number: float) -> None:
    results = example_results()
    put(results, number)
    with pytest.raises(ValueError, match="JSON"):
        check_results(results)


CLOSED: list[Change] = [
    lambda results: results,
    lambda results: results["job"],
    lambda results: results["corpora"],
    lambda results: results["corpora"]["reference"],
    lambda results: results["scores"][3],
    lambda results: results["measures"]["heat"],
    lambda results: results["measures"]["heat"]["corpus"],
    lambda results: results["measures"]["heat"]["corpus"]["graph"],
    lambda results: results["measures"]["heat"]["imd"],
    lambda results: results["measures"]["geomca"],
    lambda results: results["measures"]["geomca"]["sizes"],
    lambda results: results["measures"]["geomca"]["components"][0],
    lambda results: results["measures"]["magnitude"],
    lambda results: results["measures"]["magnitude"]["reference"],
    lambda results: results["measures"]["vendi"],
    lambda results: results["measures"]["vendi"]["corpus"][0],
    lambda results: results["timings"][2],
]


@pytest.mark.parametrize("where", CLOSED)
def test_names_outside_the_contract_are_refused(where: Change) -> None:
    with pytest.raises(jsonschema.ValidationError, match="unexpected_name"):
        check_results(changed(lambda results: where(results).update(unexpected_name=1)))


@pytest.mark.parametrize("where", CLOSED)
def test_a_missing_name_is_refused(where: Change) -> None:
    optional = {
        "reference",
        "imd",
        "tolerance",
        "lower",
        "upper",
        "convergence",
        "area_bracket",
        "kernel",
        "order",
        "label",
        "scale",
        "provenance",
        "projected_memory_bytes",
        "tasks_at_once",
    }
    names = set(where(example_results())) - optional
    assert names or where(example_results()).keys() <= optional | {"corpus"}
    for name in names:
        with pytest.raises(jsonschema.ValidationError, match=f"'{name}' is a required property"):
            check_results(changed(lambda results, name=name: where(results).pop(name)))


def test_a_further_measure_is_accepted_and_must_be_an_object() -> None:
    check_results(changed(lambda results: results["measures"].update(toy={"anything": [1, None]})))
    with pytest.raises(jsonschema.ValidationError):
        check_results(changed(lambda results: results["measures"].update(toy=3)))


NULLABLE: list[tuple[Change, str]] = [
    (lambda results: results["measures"]["magnitude"]["corpus"], "convergence_scale"),
    (lambda results: results["measures"]["magnitude"]["reference"], "area"),
    (lambda results: results["measures"]["vendi"]["corpus"][2], "value"),
    (lambda results: results["measures"]["geomca"], "recall"),
    (lambda results: results["corpora"]["corpus"], "duplicates"),
]


@pytest.mark.parametrize(("where", "key"), NULLABLE)
def test_a_null_number_needs_its_reason(where: Change, key: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=f"'{key}_reason' is a required property"):
        check_results(changed(lambda results: where(results).update({key: None})))
    check_results(
        changed(lambda results: where(results).update({key: None, f"{key}_reason": "too few rows"}))
    )


def test_a_null_score_needs_its_reason() -> None:
    nothing = {"value": None, "lower": None, "upper": None, "bounds": None}
    with pytest.raises(jsonschema.ValidationError, match="'reason' is a required property"):
        check_results(changed(lambda results: results["scores"][0].update(nothing)))
    check_results(
        changed(lambda results: results["scores"][0].update(nothing, reason="too few rows"))
    )


def test_a_score_may_say_that_it_does_not_depend_on_the_number_of_rows() -> None:
    check_results(changed(lambda results: results["scores"][0].update(size_dependent=False)))


def test_a_score_with_a_value_needs_its_bracket() -> None:
    for key in ("lower", "upper", "bounds"):
        with pytest.raises(jsonschema.ValidationError):
            check_results(
                changed(lambda results, key=key: results["scores"][0].update({key: None}))
            )


@pytest.mark.parametrize(
    "change",
    [
        lambda results: results.update(schema="latentscale.results/2"),
        lambda results: results["scores"][0].update(of="both"),
        lambda results: results["scores"][0].update(bounds="sure"),
        lambda results: results["scores"][0].update(better="maybe"),
        lambda results: results["scores"][0].update(value="1.0"),
        lambda results: results["scores"][0].update(sampling_error=-1.0),
        lambda results: results["scores"][0].update(size_dependent=None),
        lambda results: results["measures"]["vendi"]["corpus"][0].update(lower=None),
        lambda results: results["corpora"]["corpus"].update(n=0),
        lambda results: results["measures"]["geomca"].update(eta_c=1.5),
        lambda results: results["job"].update(config_hash="not hexadecimal"),
        lambda results: results["arrays"].update({"heat/corpus": 3}),
    ],
)
def test_values_outside_the_contract_are_refused(change: Change) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check_results(changed(change))
