"""Every number of the recorded jobs is still what it was, to the bit."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance import recorded
from tests.acceptance.recorded import LARGE_JOB, PLACES, SMALL_JOBS, Difference, Job

SHORT = {
    ("everything", "local"),
    ("lowered-heat", "serial"),
}
"""Jobs, and places, that are compared in every run of the tests; all others in the full one."""

CASES = [
    pytest.param(
        job,
        place,
        id=f"{job.name}-{place}",
        marks=[] if (job.name, place) in SHORT else [pytest.mark.full],
    )
    for job in (*SMALL_JOBS, LARGE_JOB)
    for place in job.places
]


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with recorded.object_store() as url:
        yield url


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("job", "place"), CASES)
def test_numbers_are_those_on_record(job: Job, place: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("store") if PLACES[place][1] else ""
    found = recorded.run_and_reduce(job, place, url)
    # Machines of one description, too, may differ in the last bits, and brackets enlarge these.
    differences = recorded.compare_with_record(job, found, exactly=False)
    if differences:
        pytest.fail(recorded.explain(differences), pytrace=False)


def test_every_job_has_a_record_and_every_record_a_job() -> None:
    names = {job.name for job in SMALL_JOBS}
    assert len(names) == len(SMALL_JOBS)
    assert {path.stem for path in recorded.RECORDS.glob("*.json")} == names
    assert sum(path.stat().st_size for path in recorded.RECORDS.glob("*")) < 3 * 2**20


def test_differences_name_their_place() -> None:
    row = {"measure": "vendi", "of": "corpus", "score": "vendi", "order": "1", "value": 2.5}
    old = {"scores": [row], "corpora": {"corpus": {"n": 3}, "reference": None}, "curve": [1.0, 2.0]}
    assert list(recorded.find_differences(old, json.loads(json.dumps(old)))) == []
    new = json.loads(json.dumps(old))
    new["scores"][0]["value"] = float(np.nextafter(2.5, 3))
    del new["corpora"]["corpus"]["n"]
    new["corpora"]["reference"] = {}
    new["curve"] = [1, 2.0, 3.0]
    found = list(recorded.find_differences(old, new))
    assert found == [
        Difference("scores[0 vendi corpus vendi 1].value", 2.5, 2.5000000000000004),
        Difference("corpora.corpus.n", 3, None),
        Difference("corpora.reference", None, {}),
        Difference("curve.length", 2, 3),
        Difference("curve[0]", 1.0, 1),
    ]
    assert "scores[0 vendi corpus vendi 1].value: 2.5 -> 2.5000000000000004" in recorded.explain(
        found
    )


def test_zeros_have_signs_and_truth_is_no_number() -> None:
    for old, new in ((0.0, -0.0), (1, True), (1, 1.0), ("1", 1), (None, 0)):
        assert len(list(recorded.find_differences([old], [new]))) == 1


def test_on_another_machine_numbers_are_near_and_checksums_left_aside() -> None:
    array = {"dtype": "<f8", "shape": [2], "sha256": "a"}
    old = {"value": 3.0, "n": 7, "array": array}
    near = {"value": 3.0 * (1 + 5e-10), "n": 7, "array": {**array, "sha256": "b"}}
    assert list(recorded.find_differences(old, near, exactly=False)) == []
    assert len(list(recorded.find_differences(old, near))) == 2
    far = {"value": 3.0 * (1 + 5e-9), "n": 8, "array": {**array, "shape": [3]}}
    paths = [each.path for each in recorded.find_differences(old, far, exactly=False)]
    assert paths == ["value", "n", "array.shape[0]"]


def test_on_another_machine_an_estimate_moves_within_its_interval() -> None:
    old = {"value": 3.0, "lower": 2.0, "upper": 4.0, "bounds": "interval95"}
    near, far = {**old, "value": 3.03}, {**old, "value": 3.05}
    assert list(recorded.find_differences(old, near, exactly=False)) == []
    assert len(list(recorded.find_differences(old, far, exactly=False))) == 1
    proven = {**old, "bounds": "certified"}
    assert (
        len(list(recorded.find_differences(proven, {**proven, "value": 3.03}, exactly=False))) == 1
    )


def test_arrays_are_told_apart_by_type_shape_and_values(tmp_path: Path) -> None:
    descriptions = []
    for array in (np.arange(4.0), np.arange(4), np.arange(4.0).reshape(2, 2), -np.arange(4.0)):
        np.save(tmp_path / "a.npy", array)
        descriptions.append(recorded.describe_array((tmp_path / "a.npy").read_bytes()))
    assert len({json.dumps(each) for each in descriptions}) == 4
    with pytest.raises(ValueError, match="more in the object"):
        recorded.describe_array(2 * (tmp_path / "a.npy").read_bytes())


def test_a_limit_that_no_module_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(recorded.CommandFailed, match="no module has MAX_UNICORNS"):
        recorded.run_command(tmp_path, "list", limits={"MAX_UNICORNS": 1})
