"""Publishing: one winner, checked reads, nothing of a loser left; on disk and on S3."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from latentscale_pipeline.storage.artifacts import (
    CorruptResult,
    Cost,
    Output,
    check_bytes,
    check_sizes,
    collect_garbage,
    need_marker,
    read_marker,
    reuse_part,
    reuse_stage,
    withdraw,
)
from latentscale_pipeline.storage.canonical import digest
from latentscale_pipeline.storage.objects import ObjectStore
from tests.support.artifacts import write_artifact

COST = Cost(1.5, 1000)
FOLDER = "stages/toy/0123456789abcdef"
PART = f"{FOLDER}/part-00012"
OTHER = f"{FOLDER}/part-00001"


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "disk":
        return ObjectStore(str(tmp_path / "job"))
    return ObjectStore(f"{request.getfixturevalue('s3_url')}/job")


def output(seed: int) -> Output:
    array = np.random.default_rng(seed).normal(size=(5, 3))
    return Output({"seed": seed, "value": 0.1}, {"array": array, "whole": np.arange(seed)})


def test_what_is_published_is_read_back(store: ObjectStore) -> None:
    assert read_marker(store, PART) is None
    artifact = write_artifact(store, PART, "a-0", output(7), COST)
    again = need_marker(store, PART)
    assert again == artifact
    assert (again.attempt, again.cost) == ("a-0", COST)
    assert again.values == {"seed": 7, "value": 0.1}
    np.testing.assert_array_equal(again.array("array"), output(7).arrays["array"])
    np.testing.assert_array_equal(again.array("whole"), np.arange(7))
    assert again.path("array") == f"{PART}.a-0/array.npy"
    check_sizes(again, store.sizes(FOLDER))
    assert check_bytes(again) == sum(described["size"] for described in again.objects.values())


def test_a_second_attempt_with_other_bytes_is_harmless(store: ObjectStore) -> None:
    write_artifact(store, PART, "a-0", output(1), COST)
    second = write_artifact(store, PART, "b-0", output(2), COST)
    assert (second.attempt, second.values["seed"]) == ("a-0", 1)
    np.testing.assert_array_equal(second.array("array"), output(1).arrays["array"])
    assert [key for key in store.keys(FOLDER) if "b-0" in key] == []


def test_sixteen_racers_have_one_winner(store: ObjectStore) -> None:
    def race(seed: int) -> str:
        return write_artifact(store, PART, f"attempt-{seed}", output(seed), COST).attempt

    with ThreadPoolExecutor(16) as pool:
        winners = set(pool.map(race, range(16)))
    assert len(winners) == 1
    winner = need_marker(store, PART)
    assert winner.attempt in winners
    seed = int(winner.attempt.removeprefix("attempt-"))
    np.testing.assert_array_equal(winner.array("array"), output(seed).arrays["array"])
    assert sorted(store.keys(FOLDER)) == sorted(
        [f"{PART}.json", winner.path("array"), winner.path("whole")]
    )


def test_objects_of_a_killed_attempt_are_swept(store: ObjectStore) -> None:
    store.write(f"{PART}.dead-0/array.npy", b"half an arr")
    store.write(f"{OTHER}.dead-0/array.npy", b"of a part that nobody finished")
    write_artifact(store, PART, "a-0", output(3), COST)
    left = collect_garbage(store, FOLDER)
    assert left == store.keys(FOLDER)
    assert [key for key in left if "dead" in key] == []
    np.testing.assert_array_equal(need_marker(store, PART).array("whole"), np.arange(3))


def test_a_marker_that_is_listed_late_keeps_its_objects(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_artifact(store, PART, "a-0", output(3), COST)
    listed = ObjectStore.keys
    monkeypatch.setattr(
        ObjectStore,
        "keys",
        lambda self, prefix="": [key for key in listed(self, prefix) if key != f"{PART}.json"],
    )
    assert f"{PART}.a-0/whole.npy" in collect_garbage(store, FOLDER)
    np.testing.assert_array_equal(need_marker(store, PART).array("whole"), np.arange(3))


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "flipped"])
def test_a_damaged_object_is_found_on_reading(store: ObjectStore, damage: str) -> None:
    artifact = write_artifact(store, PART, "a-0", output(4), COST)
    key = artifact.path("array")
    data = store.read(key)
    flipped = data[:150] + bytes([data[150] ^ 1]) + data[151:]
    changed = {"empty": b"", "truncated": data[:-1], "flipped": flipped}
    if damage == "missing":
        store.remove(key)
    else:
        store.write(key, changed[damage])
    with pytest.raises(CorruptResult) as caught:
        artifact.array("array")
    assert caught.value.part == PART
    assert key in str(caught.value)
    with pytest.raises(CorruptResult, match=key):
        check_bytes(artifact)
    if damage == "flipped":
        check_sizes(artifact, store.sizes(FOLDER))
    else:
        with pytest.raises(CorruptResult, match=key):
            check_sizes(artifact, store.sizes(FOLDER))


def in_sections() -> Output:
    pairs = [("a", np.arange(5)), ("b/1", np.array([(1, 2.0)], dtype="i4,f8"))]
    return Output(sections={"rows": iter(pairs), "none": []})


def test_sections_are_read_one_by_one_and_adopted(store: ObjectStore, tmp_path: Path) -> None:
    artifact = write_artifact(store, PART, "a-0", in_sections(), COST)
    other = ObjectStore(str(tmp_path / "other"))
    assert reuse_part(store, PART, other, PART)
    for found in (artifact, need_marker(other, PART)):
        np.testing.assert_array_equal(found.section("rows", "a"), np.arange(5))
        np.testing.assert_array_equal(found.section("rows", "b/1"), np.array([(1, 2.0)], "i4,f8"))
        assert set(found.objects["none"]["sections"]) == set()
        assert check_bytes(found) == found.objects["rows"]["size"]


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "flipped"])
def test_a_damaged_section_is_found_on_reading(store: ObjectStore, damage: str) -> None:
    artifact = write_artifact(store, PART, "a-0", in_sections(), COST)
    key = artifact.path("rows")
    data = store.read(key)
    changed = {"empty": b"", "truncated": data[:-1], "flipped": data[:-1] + b"x"}
    if damage == "missing":
        store.remove(key)
    else:
        store.write(key, changed[damage])
    with pytest.raises(CorruptResult, match=key):
        artifact.section("rows", "b/1")
    if damage in {"truncated", "flipped"}:
        np.testing.assert_array_equal(artifact.section("rows", "a"), np.arange(5))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"attempt": "a"}'])
def test_a_damaged_marker_counts_as_none(store: ObjectStore, content: bytes) -> None:
    store.write(f"{PART}.json", content)
    assert read_marker(store, PART) is None
    with pytest.raises(CorruptResult, match=r"part-00012\.json is missing or damaged"):
        need_marker(store, PART)


def test_an_altered_marker_counts_as_none(store: ObjectStore) -> None:
    write_artifact(store, PART, "a-0", output(4), COST)
    body = json.loads(store.read(f"{PART}.json"))
    body["values"]["seed"] = 5
    store.write(f"{PART}.json", json.dumps(body).encode())
    assert read_marker(store, PART) is None


def test_withdrawing_removes_every_attempt(store: ObjectStore) -> None:
    write_artifact(store, PART, "a-0", output(4), COST)
    store.write(f"{PART}.b-0/array.npy", b"x")
    write_artifact(store, f"{FOLDER}/part-00013", "a-0", output(5), COST)
    withdraw(store, PART)
    assert all("part-00013" in key for key in store.keys(FOLDER))
    assert need_marker(store, f"{FOLDER}/part-00013").values["seed"] == 5


def test_adopting_copies_and_checks(store: ObjectStore, tmp_path: Path) -> None:
    target = ObjectStore(str(tmp_path / "other"))
    write_artifact(store, PART, "a-0", output(4), COST)
    assert not reuse_stage(store, target, FOLDER)
    result = write_artifact(store, f"{FOLDER}/result", "a-0", output(5), COST)
    assert reuse_stage(store, target, FOLDER)
    reused = need_marker(target, f"{FOLDER}/result")
    np.testing.assert_array_equal(reused.array("array"), output(5).arrays["array"])
    np.testing.assert_array_equal(need_marker(target, PART).array("whole"), np.arange(4))
    store.write(result.path("array"), b"other")
    assert not reuse_stage(store, ObjectStore(str(tmp_path / "third")), FOLDER)


@pytest.mark.parametrize(
    "key", ["../../payload.npy", f"{PART}.a-0/../../x.npy", f"{FOLDER}/part-00013.a-0/array.npy"]
)
def test_a_marker_that_leads_elsewhere_counts_as_none(store: ObjectStore, key: str) -> None:
    write_artifact(store, PART, "a-0", output(4), COST)
    body = json.loads(store.read(f"{PART}.json"))
    del body["digest"]
    body["objects"]["array"]["key"] = key
    store.write(f"{PART}.json", json.dumps({**body, "digest": digest(body)}).encode())
    assert read_marker(store, PART) is None


def test_numbers_json_has_not_are_refused(store: ObjectStore) -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant|Out of range"):
        write_artifact(store, PART, "a-0", Output({"value": float("nan")}), COST)
    assert read_marker(store, PART) is None
