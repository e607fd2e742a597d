"""Every label of a corpus measured as a corpus of its own would be."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus import Corpus, labelled_rows, rows_by_label, rows_of_label
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures import by_label
from tests.conftest import Ended
from tests.support.jobs import timeless

Command = Callable[..., Ended]

LABELS = {"plain": 60, "né/../ *": 45, "": 25, "rare": 19}
MEASURES = {
    "heat": {"times": {"count": 4}, "probes": 40},
    "magnitude": {"scales": [0.0, 0.5, 2.0]},
    "vendi": {"kernels": ["cosine", {"name": "rbf", "bandwidth": 2.0}], "orders": [1, 2]},
}


def make_rows(folder: Path, times: int) -> None:
    """Write rows in random order of label, with ids and weights."""
    generator = np.random.default_rng(17)
    labels = generator.permutation([label for label, n in LABELS.items() for _ in range(n * times)])
    rows = generator.normal(size=(len(labels), 6)).astype("f4")
    rows[labels == "plain", 3] = 0
    np.save(folder / "rows.npy", rows)
    weights = generator.random(len(labels))
    np.save(folder / "weights.npy", weights)
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    (folder / "ids.txt").write_text("".join(f"row {i}\n" for i in range(len(labels))))
    for label, name in (("plain", "plain"), ("né/../ *", "other")):
        np.save(folder / f"{name}.npy", rows[labels == label])
        np.save(folder / f"{name}-weights.npy", weights[labels == label])


def ingest_rows(folder: Path) -> Corpus:
    sidecars = {"labels": "labels.txt", "ids": "ids.txt", "weights": "weights.npy"}
    return ingest(
        [str(folder / "rows.npy")],
        str(folder / "corpus.zarr"),
        shard_bytes=24_576,
        **{name: str(folder / file) for name, file in sidecars.items()},
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    make_rows(folder, 1)
    return folder


@pytest.fixture(scope="module")
def corpus(data: Path) -> Corpus:
    return ingest_rows(data)


@pytest.fixture
def write_job(data: Path, tmp_path: Path) -> Callable[..., Path]:
    def write(corpus: str, **keys: Any) -> Path:
        fields = {
            "name": "labelled",
            "corpus": corpus,
            "output": str(tmp_path / "jobs"),
            "measures": MEASURES,
            "cluster": {"kind": "serial"},
        }
        config = tmp_path / "job.yaml"
        config.write_text(json.dumps(fields | keys))
        return config

    return write


@pytest.mark.parametrize("excluded", [[], ["vectors/c/1/0"]])
def test_a_label_reads_as_its_rows_do(tmp_path: Path, excluded: list[str]) -> None:
    make_rows(tmp_path, 24)
    corpus = ingest_rows(tmp_path)
    assert corpus.shard_count == 4
    whole = corpus.without(excluded)
    rows = np.load(tmp_path / "rows.npy")
    labels = np.array((tmp_path / "labels.txt").read_text().split("\n")[:-1])
    weights = np.load(tmp_path / "weights.npy")
    kept = np.ones(len(rows), dtype=bool)
    if excluded:
        kept[corpus.shard_rows : 2 * corpus.shard_rows] = False
    assert list(rows_by_label(whole)) == sorted(LABELS)
    for label in LABELS:
        mine = kept & (labels == label)
        view = rows_of_label(whole, label)
        assert (view.n, view.d, view.zero_rows) == (mine.sum(), 6, 0)
        np.testing.assert_array_equal(view.read_all(), rows[mine])
        shards = [view.read_shard(i) for i in range(view.shard_count)]
        assert all(len(shard) == view.shard_rows for shard in shards[:-1])
        np.testing.assert_array_equal(np.concatenate(shards), rows[mine])
        for i, shard in enumerate(shards):
            np.testing.assert_array_equal(rows[mine][view.shard_range(i)], shard)
        np.testing.assert_array_equal(view.read_rows(3, 9), rows[mine][3:9])
        np.testing.assert_array_equal(view.read_index(np.array([2, 2, 8])), rows[mine][[2, 2, 8]])
        assert view.texts("ids") == [f"row {i}" for i in np.flatnonzero(mine)]
        np.testing.assert_array_equal(view.weights(), weights[mine])
        assert view.texts("labels") == [label] * view.n
        again = pickle.loads(pickle.dumps(view))
        assert again == view
        assert again.fingerprint == view.fingerprint
        np.testing.assert_array_equal(again.read_all(), rows[mine])
        part = view.without([view.manifest.vectors.shards[0].key])
        again = pickle.loads(pickle.dumps(part))
        assert again == part
        assert (again.n, again.fingerprint) == (part.n, part.fingerprint)
        np.testing.assert_array_equal(again.read_all(), part.read_all())


def test_a_label_has_the_scores_of_a_corpus_of_its_rows(
    data: Path, corpus: Corpus, write_job: Callable[..., Path], latentscale: Command
) -> None:
    ended = latentscale("run", write_job(corpus.url, group_by="labels"), "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    scales = found["measures"]["labels"].pop("scales")
    assert scales["plain"] == {
        "heat": {},
        "magnitude": {"cut-off scale of magnitude": 2.0},
        "vendi": {"bandwidth of vendi rbf": 2.0},
    }
    assert found["measures"]["labels"] == {
        "measured": {"": 25, "né/../ *": 45, "plain": 60},
        "left_out": {"rare": 19},
        "least_rows": 20,
    }
    by = rows_of_scores(found)
    whole = rows_of_scores(json.loads(latentscale("run", write_job(corpus.url), "--json").out))
    assert by[None] == whole[None]
    assert set(by) == {None, "", "né/../ *", "plain"}
    for label, name in (("plain", "plain"), ("né/../ *", "other")):
        weights = str(data / f"{name}-weights.npy")
        lone = ingest([str(data / f"{name}.npy")], str(data / f"{name}.zarr"), weights=weights)
        ended = latentscale("run", write_job(lone.url), "--json")
        alone = rows_of_scores(json.loads(ended.out))[None]
        assert by[label].keys() == alone.keys()
        for naming, score in alone.items():
            if naming[0] == "heat":  # by probes of its own
                assert by[label][naming]["lower"] <= score["upper"]
                assert score["lower"] <= by[label][naming]["upper"]
            else:
                assert by[label][naming] == score | {"label": label, "rows": LABELS[label]}


def test_a_label_has_the_sampling_errors_of_its_rows(
    tmp_path: Path, write_job: Callable[..., Path], latentscale: Command
) -> None:
    rows = np.random.default_rng(3).normal(size=(260, 5)).astype("f4")
    labels = np.arange(260) % 3 == 0
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "labels.npy", np.where(labels, "third", "rest"))
    np.save(tmp_path / "rest.npy", rows[~labels])
    measures: Any = {**MEASURES, "spectrum": {}, "spread": {}, "hubness": {}}
    measures["intrinsic_dimension"] = {}
    del measures["heat"]
    whole = ingest(
        [str(tmp_path / "rows.npy")],
        str(tmp_path / "whole.zarr"),
        labels=str(tmp_path / "labels.npy"),
    )
    lone = ingest([str(tmp_path / "rest.npy")], str(tmp_path / "rest.zarr"))
    by, alone = (
        rows_of_scores(json.loads(latentscale("run", write_job(url, **keys), "--json").out))
        for url, keys in (
            (whole.url, {"group_by": "labels", "measures": measures}),
            (lone.url, {"measures": measures}),
        )
    )
    known = {name: score for name, score in alone[None].items() if score["sampling_error"]}
    assert {measure for measure, *_ in known} == {*measures}
    for name, score in known.items():
        own = by["rest"][name]
        assert own["sampling_error"] == pytest.approx(score["sampling_error"], rel=0.4), name
        assert own["sampling_method"] == score["sampling_method"]
    few = by["third"]["vendi", "vendi", "cosine", "1"]
    assert few["sampling_error_reason"] == "it needs 100 rows or more"


def rows_of_scores(results: dict[str, Any]) -> dict[str | None, dict[tuple[Any, ...], Any]]:
    found: dict[str | None, dict[tuple[Any, ...], Any]] = {}
    for score in results["scores"]:
        naming = tuple(score.get(name) for name in ("measure", "score", "kernel", "order"))
        found.setdefault(score.get("label"), {})[naming] = score
    return found


def test_labels_are_measured_by_workers_once_and_are_part_of_the_identity(
    data: Path, corpus: Corpus, write_job: Callable[..., Path], latentscale: Command, tmp_path: Path
) -> None:
    keys = {"group_by": "labels", "measures": {"vendi": {"kernels": ["cosine"]}}}
    serial = latentscale("run", write_job(corpus.url, **keys), "--json")
    keys |= {"output": str(tmp_path / "other"), "cluster": {"kind": "local", "workers": 1}}
    workers = latentscale("run", write_job(corpus.url, **keys), "--json")
    assert workers.code == 0, workers.err
    assert timeless(json.loads(workers.out)) == timeless(json.loads(serial.out))
    again = latentscale("run", write_job(corpus.url, **keys))
    assert "nothing had to be computed" in again.out
    (data / "swapped.txt").write_text("one\ntwo\n" * (corpus.n // 2) + "one\n" * (corpus.n % 2))
    other = ingest(
        [str(data / "rows.npy")], str(tmp_path / "other.zarr"), labels=str(data / "swapped.txt")
    )
    assert other.fingerprint == corpus.fingerprint
    changed = latentscale("run", write_job(other.url, **keys), "--json")
    assert json.loads(changed.out)["job"]["id"] != json.loads(serial.out)["job"]["id"]
    assert set(rows_of_scores(json.loads(changed.out))) == {None, "one", "two"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"corpus": "plain.npy"}, "plain.npy: it has no labels, which group_by needs; give them"),
        ({"corpus": "bare.zarr"}, "bare.zarr: it has no labels; ingest it again with --labels"),
        (
            {"reference": "plain.npy"},
            "group_by measures the labels of one corpus; leave out reference",
        ),
        ({"group_by": "ids"}, "group_by must be 'labels'"),
        ({"measures": {"heat": {"k": 30}}}, "label '': corpus: heat.k is 30"),
    ],
)
def test_what_can_not_be_grouped_is_refused(
    data: Path,
    corpus: Corpus,
    write_job: Callable[..., Path],
    latentscale: Command,
    change: dict[str, Any],
    said: str,
) -> None:
    ingest([str(data / "plain.npy")], str(data / "bare.zarr"), overwrite=True)
    places = {k: str(data / v) for k, v in change.items() if k in ("corpus", "reference")}
    fields = {"corpus": corpus.url, "group_by": "labels"} | change | places
    ended = latentscale("plan", write_job(**fields))
    assert ended.code == 2
    assert said in ended.err


def test_too_many_labels_are_refused(
    corpus: Corpus,
    write_job: Callable[..., Path],
    latentscale: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(by_label, "MAX_LABELS", 2)
    ended = latentscale("plan", write_job(corpus.url, group_by="labels"))
    assert ended.code == 2
    assert "group_by would measure 3 labels, and 2 is the most" in ended.err


def test_labels_that_name_rows_are_not_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "rows.npy", np.eye(50, 3, dtype="f4"))
    (tmp_path / "labels.txt").write_text("".join(f"document {i}\n" for i in range(50)))
    labels = str(tmp_path / "labels.txt")
    corpus = ingest([str(tmp_path / "rows.npy")], str(tmp_path / "c.zarr"), labels=labels)
    monkeypatch.setattr(labelled_rows, "MOST_LABELS", 49)
    with pytest.raises(BadInput, match="more than 49 different labels, so they name rows rather"):
        rows_by_label(corpus)
    monkeypatch.setattr(labelled_rows, "MOST_LABELS", 50)
    assert len(rows_by_label(corpus)) == 50


def test_a_corpus_without_labels_has_no_rows_by_label(data: Path) -> None:
    found = ingest([str(data / "plain.npy")], str(data / "unlabelled.zarr"), overwrite=True)
    with pytest.raises(BadInput, match="it has no labels"):
        rows_by_label(found)


def test_a_label_without_weight_has_a_reason_and_leaves_the_others(
    tmp_path: Path, latentscale: Command
) -> None:
    generator = np.random.default_rng(2)
    np.save(tmp_path / "rows.npy", generator.normal(size=(120, 4)).astype("f4"))
    np.save(tmp_path / "weights.npy", np.repeat([0.0, 1.0], 60))
    (tmp_path / "labels.txt").write_text("a\n" * 60 + "b\n" * 60)
    beside = ("--labels", tmp_path / "labels.txt", "--weights", tmp_path / "weights.npy")
    made = latentscale("ingest", tmp_path / "rows.npy", tmp_path / "rows.zarr", *beside)
    assert made.code == 0, made.err
    options = ("--measures", "vendi", "--output", tmp_path / "jobs", "-o", "group_by=labels")
    ended = latentscale("run", tmp_path / "rows.zarr", *options, "--json")
    assert ended.code == 0, ended.err
    scores = [row for row in json.loads(ended.out)["scores"] if row.get("label")]
    assert {row["reason"] for row in scores if row["label"] == "a"} == {"all weights are 0"}
    assert all(row["value"] > 1.0 for row in scores if row["label"] == "b")
