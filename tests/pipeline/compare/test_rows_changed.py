"""Rows that a corpus gained and lost since the baseline, by their ids and labels."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import latentscale_pipeline.api
from latentscale_pipeline.compare import rows_changed
from latentscale_pipeline.compare.jobs import compare
from latentscale_pipeline.compare.report import (
    NEW_ROWS,
    NO_NEW_ROW,
    NO_ROW,
    NOT_TOLD,
    WITHOUT_IDS,
    comparison_report,
)
from latentscale_pipeline.compare.rows_changed import (
    LabelChange,
    LabelChanges,
    RowChanges,
    count_changes,
)
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.results.model import RowsToLookAt
from tests.conftest import Ended
from tests.support.comparisons import SETTINGS, results, row
from tests.support.results_documents import finished_job


def corpus_of(
    folder: Path,
    name: str,
    ids: list[str] | None,
    labels: list[str] | None = None,
    rows: np.ndarray | None = None,
) -> Any:
    """Ingest a corpus of some ids and labels, and return it."""
    if rows is None:
        count = len(ids or labels or range(5))
        rows = np.random.default_rng(count).normal(size=(count, 3))
    np.save(folder / f"{name}.npy", rows)
    settings = {}
    for kind, texts in (("ids", ids), ("labels", labels)):
        if texts is not None:
            (folder / f"{name}.{kind}.txt").write_text("".join(f"{one}\n" for one in texts))
            settings[kind] = str(folder / f"{name}.{kind}.txt")
    return ingest([str(folder / f"{name}.npy")], str(folder / f"{name}.zarr"), **settings)


def job_on(corpus: Any, name: str, **changes: Any) -> Any:
    document = results([row(1.0)], name=name, n=corpus.n, fingerprint=corpus.fingerprint)
    document["corpora"]["corpus"] |= {"uri": corpus.url, **changes}
    return finished_job(document, SETTINGS, f"jobs/{name}-1a2b3c4d")


def test_ids_are_counted_by_where_they_are(tmp_path: Path) -> None:
    before = corpus_of(tmp_path, "before", [f"id-{i}" for i in range(100)] + ["ä", "猫"])
    after = corpus_of(tmp_path, "after", ["猫", *(f"id-{i}" for i in range(30, 140))])
    changes = count_changes(job_on(after, "nightly"), job_on(before, "release"))
    assert changes == RowChanges(added=40, removed=31, kept=71)
    assert changes is not None
    assert changes.lines == {"rows": "40 rows added, 31 removed, 71 kept, by their ids"}
    same = count_changes(job_on(before, "nightly"), job_on(before, "release"))
    assert same == RowChanges(0, 0, 102)


@pytest.mark.parametrize(
    "changes", [{"uri": "nowhere.zarr"}, {"fingerprint": "f00d"}, {"uri": None}]
)
def test_a_corpus_that_is_not_there_any_more_is_not_counted(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    corpus = corpus_of(tmp_path, "rows", ["a", "b"])
    assert count_changes(job_on(corpus, "nightly", **changes), job_on(corpus, "release")) is None


def test_a_corpus_that_was_appended_to_is_seen_as_it_was(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    corpus_of(tmp_path, "new", [f"new-{i}" for i in range(4)], ["b", "b", "c", "c"])
    corpus = corpus_of(tmp_path, "rows", [f"old-{i}" for i in range(30)], ["a"] * 20 + ["b"] * 10)
    measures = ("--measures", "duplicates", "--output", tmp_path / "jobs", "--quiet")
    assert latentscale("run", corpus.url, "--name", "n", *measures).code == 0
    [old] = (tmp_path / "jobs").glob("n-*")
    texts = ("--ids", tmp_path / "new.ids.txt", "--labels", tmp_path / "new.labels.txt")
    assert latentscale("ingest", tmp_path / "new.npy", corpus.url, "--append", *texts).code == 0
    assert latentscale("run", corpus.url, "--name", "n", *measures).code == 0
    [new] = set((tmp_path / "jobs").glob("n-*")) - {old}
    said = latentscale("compare", new, old).out
    assert "rows      4 rows added, 0 removed, 30 kept, by their ids" in said
    assert "1 of 3 labels new" in said
    rows = latentscale("rows", new, "--new-since", old, "--columns", "id", "--json").out
    assert [json.loads(line)["id"] for line in rows.split("\n")[:-1]] == [
        f"new-{i}" for i in range(4)
    ]
    before = latentscale("rows", old, "--where", 'label == "b"', "--columns", "id", "--json").out
    assert [json.loads(line)["id"] for line in before.split("\n")[:-1]] == [
        f"old-{i}" for i in range(20, 30)
    ]


def test_rows_without_an_id_are_never_kept(tmp_path: Path) -> None:
    before = corpus_of(tmp_path, "before", ["a", "", "b", "", ""])
    after = corpus_of(tmp_path, "after", ["", "b", "a", ""])
    changes = count_changes(job_on(after, "nightly"), job_on(before, "release"))
    assert changes == RowChanges(added=2, removed=3, kept=2)


def test_rows_without_ids_are_not_counted(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "rows", None)
    assert count_changes(job_on(corpus, "nightly"), job_on(corpus, "release")) is None


def test_of_an_id_that_repeats_as_many_rows_are_kept_as_both_have(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    ids = [[f"id-{i}" for i in generator.integers(60, size=size)] for size in (80, 50)]
    labels = [[f"label {i}" for i in generator.integers(3, size=len(own))] for own in ids]
    after, before = (
        corpus_of(tmp_path, name, *texts)
        for name, texts in zip(("after", "before"), zip(ids, labels, strict=True), strict=True)
    )
    ours, theirs = map(Counter, ids)
    kept = (ours & theirs).total()
    where = [dict(zip(*texts, strict=True)) for texts in zip(ids, labels, strict=True)]
    relabelled = sum(
        where[0][name] != where[1][name] for name in ours if ours[name] == theirs[name] == 1
    )
    changes = count_changes(job_on(after, "nightly"), job_on(before, "release"))
    assert changes is not None
    assert (changes.added, changes.removed, changes.kept) == (80 - kept, 50 - kept, kept)
    assert changes.labels is not None
    assert changes.labels.relabelled == relabelled > 0


# --- labels -----------------------------------------------------------------------------------


def test_labels_are_counted_and_followed_by_ids(tmp_path: Path) -> None:
    ids = [f"id-{i}" for i in range(10)]
    before = corpus_of(tmp_path, "before", ids, [*"aaaabbbccd"])
    # Ids 0 and 1 are gone, 3 has another label, and two rows are new.
    after = corpus_of(tmp_path, "after", [*ids[:1:-1], "x", "y"], [*"dccbbbca", "e", "e"])
    changes = count_changes(job_on(after, "nightly"), job_on(before, "release"))
    found = LabelChanges(
        count=5,
        changed=(LabelChange("a", 1, 4), LabelChange("e", 2, 0), LabelChange("c", 3, 2)),
        unlabelled=None,
        relabelled=1,
    )
    assert changes == RowChanges(added=2, removed=2, kept=8, labels=found)
    assert changes.lines["labels"] == (
        "1 of 5 labels new (e 2 rows); 2 of 5 labels with more or fewer rows (a 4 → 1 row, "
        "c 2 → 3 rows); 1 kept row with another label"
    )


def test_labels_alone_say_what_changed(tmp_path: Path) -> None:
    before = corpus_of(tmp_path, "before", None, [*"aaaabbbcdefg"])
    after = corpus_of(tmp_path, "after", None, [*"aaaabbb"])
    changes = count_changes(job_on(after, "nightly"), job_on(before, "release"))
    assert changes is not None
    assert changes.lines == {"labels": "5 of 7 labels gone (c 1 row, d 1 row, e 1 row, 2 more)"}
    same = count_changes(job_on(after, "nightly"), job_on(after, "release"))
    assert same is not None
    assert same.lines == {"labels": "2 labels, no share changed by more than chance"}


def test_labels_of_fresh_samples_change_by_chance(tmp_path: Path) -> None:
    """Of 50 pairs of samples of one source, few name a label; half of one is named."""

    def said(seed: int, kept: float) -> str:
        generator = np.random.default_rng(seed)
        jobs = []
        for name, share in (("after", kept), ("before", 1.0)):
            labels = [f"l{i}" for i in generator.choice(12, p=[0.4, *[0.6 / 11] * 11], size=1000)]
            labels = [own for own in labels if own != "l3" or generator.random() < share]
            labels += [""] * generator.poisson(50)
            jobs.append(job_on(corpus_of(tmp_path, f"{name}{seed}{kept}", None, labels), name))
        changes = count_changes(*jobs)
        assert changes is not None
        return changes.lines["labels"]

    alike = [said(seed, 1.0) for seed in range(50)]
    assert sum(line == "12 labels, no share changed by more than chance" for line in alike) >= 44
    assert "1 of 12 labels with more or fewer rows (l3 " in said(50, 0.2)


def test_rows_without_a_label_are_no_label(tmp_path: Path) -> None:
    before = corpus_of(tmp_path, "before", None, ["a", "b"] * 50)
    after = corpus_of(tmp_path, "after", None, ["a", "b", "a", "b", ""] * 20)
    changes = count_changes(job_on(after, "nightly"), job_on(before, "release"))
    assert changes is not None
    assert changes.lines == {"labels": "0 → 20 rows without a label"}


def test_labels_as_many_as_rows_are_names_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_changed, "MAX_LABELS", 3)
    corpus = corpus_of(tmp_path, "rows", [*"wxyz"], [*"abcd"])
    changes = count_changes(job_on(corpus, "nightly"), job_on(corpus, "release"))
    assert changes == RowChanges(0, 0, 4, None)


def test_every_view_says_what_changed(tmp_path: Path, latentscale: Any) -> None:
    folders = []
    for name, first in (("release", 0), ("nightly", 3)):
        ids = [f"id-{i}" for i in range(first, first + 10)]
        corpus = corpus_of(tmp_path, name, ids, ["|*a*|"] * 5 + [name] * 5)
        found = job_on(corpus, name)
        folder = tmp_path / f"{name}-1a2b3c4d"
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps(found.results.document()))
        (folder / "config.json").write_text(json.dumps(SETTINGS))
        folders.append(folder)
    release, nightly = folders
    said = "3 rows added, 3 removed, 7 kept, by their ids"
    ended: Ended = latentscale("compare", nightly, release)
    named = "1 of 3 labels new (nightly 5 rows); 1 of 3 labels gone (release 5 rows); "
    assert f"rows      {said}\nlabels    {named}5 kept rows" in ended.out
    written = latentscale("compare", nightly, release, "--markdown", "-").out
    assert f"\n{said}." in written
    assert f"\n{named}" in written
    document = json.loads(latentscale("compare", nightly, release, "--json").out)
    labels = document["rows"].pop("labels")
    assert document["rows"] == {"added": 3, "removed": 3, "kept": 7, "new": []}
    assert labels["changed"][0] == {"label": "nightly", "rows": 5, "baseline_rows": 0}
    page = latentscale("report", nightly, release).out
    assert f"{said}." in page
    assert named in page


# --- rows to look at --------------------------------------------------------------------------


def naming(job: Any, *ids: str | None, count: int | None = None) -> Any:
    """Return a job whose results name rows that are far from all others."""
    rows = [{"row": place, "id": one, "distance": 9.0} for place, one in enumerate(ids)]
    kept = [{key: value for key, value in found.items() if value is not None} for found in rows]
    named = RowsToLookAt.model_validate(
        {"reason": "outliers", "of": "corpus", "count": count or len(ids), "rows": kept}
    )
    return replace(job, results=job.results.model_copy(update={"rows": [named]}))


def shown(job: Any, baseline: Any) -> tuple[list[str], str]:
    """Return the names of the rows with which a comparison opens, and what it says of them."""
    found = replace(compare(job, baseline), rows=count_changes(job, baseline))
    opening = comparison_report([found]).opening
    assert opening is not None
    return [row.name for row in opening.look], opening.look_said


def test_rows_that_stand_out_are_new_if_the_baseline_does_not_have_them(tmp_path: Path) -> None:
    before = corpus_of(tmp_path, "before", ["a", "b", "c", "d"])
    after = corpus_of(tmp_path, "after", ["c", "d", "e", "f"])
    ours, theirs = job_on(after, "nightly"), job_on(before, "release")
    assert shown(naming(ours, "c", "e"), naming(theirs, "b", "c")) == (["e"], NEW_ROWS)
    assert shown(naming(ours, "c"), naming(theirs, "c")) == ([], NO_NEW_ROW)
    assert shown(naming(ours), naming(theirs, "c")) == ([], NO_ROW)
    # The baseline names one of its three, which may be c or d.
    assert shown(naming(ours, "c", "d"), naming(theirs, "a", count=3)) == ([], NOT_TOLD)


@pytest.mark.parametrize("place", ["before", "between", "behind"])
@pytest.mark.parametrize(
    ("reason", "column", "apart"),
    [("exact-duplicates", "duplicate_of", 0.0), ("near-duplicates", "near_duplicate_of", 1e-4)],
)
def test_copies_that_came_with_a_change_are_new_wherever_they_stand(
    place: str, reason: str, column: str, apart: float, tmp_path: Path, latentscale: Any
) -> None:
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(200, 6)).astype("f4")
    ids = [f"old {i:03}" for i in range(200)]
    copies = generator.permutation(200)[:30]
    order = np.arange(230)
    if place == "before":
        order = np.roll(order, 30)
    elif place == "between":
        order = generator.permutation(230)
    corpora = {
        "release": corpus_of(tmp_path, "release", ids, None, rows),
        "nightly": corpus_of(
            tmp_path,
            "nightly",
            [[*ids, *(f"new {i:03}" for i in copies)][i] for i in order],
            None,
            np.concatenate([rows, rows[copies] + np.float32(apart)])[order],
        ),
    }
    for name, corpus in corpora.items():
        given = ("--name", name, "--measures", "duplicates", "--output", tmp_path / "jobs")
        assert latentscale("run", corpus.url, *given, "-o", "cluster.kind=serial").code == 0
    nightly, release = (next((tmp_path / "jobs").glob(f"{n}-*")) for n in ("nightly", "release"))
    command = ("rows", nightly, "--only", reason, "--new-since", release, "--json")
    listed = [json.loads(line) for line in latentscale(*command).out.splitlines()]
    pairs = {frozenset((row["id"], row[column])) for row in listed}
    expected = {frozenset((f"old {i:03}", f"new {i:03}")) for i in copies}
    new = {name for pair in pairs for name in pair if name.startswith("new")}
    assert new == {f"new {i:03}" for i in copies}
    assert pairs == expected or apart  # of near ones, another may be the one that stays
    told = json.loads(latentscale("compare", nightly, release, "--json").out)["rows"]["new"]
    assert {each["reason"]: each["count"] for each in told}[reason] == len(listed)


def test_new_rows_are_found_among_more_than_results_name(tmp_path: Path, latentscale: Any) -> None:
    generator = np.random.default_rng(9)
    rows = generator.normal(size=(400, 6)).astype("f4")
    old = np.concatenate([rows, rows[:70]])
    folders = []
    for name, vectors in (("release", old), ("nightly", np.concatenate([old, rows[200:290]]))):
        corpus = corpus_of(tmp_path, name, [f"{i:03}" for i in range(len(vectors))], None, vectors)
        given = ("--name", name, "--measures", "duplicates", "--output", tmp_path / "jobs")
        ended = latentscale("run", corpus.url, *given, "-o", "cluster.kind=serial")
        assert ended.code == 0, ended.err
        folders += (tmp_path / "jobs").glob(f"{name}-*")
    release, nightly = folders
    ended = latentscale("compare", nightly, release)
    command = f"rows {nightly} --only exact-duplicates --new-since {release}"
    assert f"rows      latentscale {command}\n" in ended.out
    listed = latentscale(*command.split(), "--json").out.splitlines()
    ids = [f"{i:03}" for i in range(470, 560)]
    assert [json.loads(line)["id"] for line in listed] == ids
    job = latentscale_pipeline.api.read_job(nightly)
    found = job.rows("exact-duplicates", new_since=release).to_pandas()
    assert found["id"].tolist() == ids
    with pytest.raises(ValueError, match=r"no results\.json here"):
        job.rows(new_since=tmp_path)
    told = json.loads(latentscale("compare", nightly, release, "--json").out)["rows"]["new"]
    by_reason = {each["reason"]: each for each in told}
    assert by_reason["exact-duplicates"]["count"] == 90
    assert [row["id"] for row in by_reason["exact-duplicates"]["rows"]] == ids[:50]
    report = json.loads(latentscale("report", nightly, release, "--format", "json").out)
    opening = report["opening"]
    assert len(opening["look"]) == 3
    # Of two equal rows, one is new.
    named = [{row["name"], row["why"].removeprefix("equal to ")[:3]} for row in opening["look"]]
    assert all(pair & set(ids) for pair in named)
    assert opening["look_said"] == NEW_ROWS
    assert [role for role, _ in report["corpora"]] == ["job", "baseline"]
    assert f"--new-since {release.name}" in " ".join(opening["commands"])
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    shutil.copytree(release, elsewhere / release.name)
    moved = elsewhere / release.name
    report = json.loads(latentscale("report", nightly, moved, "--format", "json").out)
    assert f"--new-since '{moved}'" in " ".join(report["opening"]["commands"])
    # Of corpora without a row in common all are new, and no command needs to say so.
    other = corpus_of(tmp_path, "other", [f"x{i:03}" for i in range(470)], None, old)
    given = ("--name", "other", "--measures", "duplicates", "--output", tmp_path / "jobs")
    ended = latentscale("run", other.url, *given, "-o", "cluster.kind=serial")
    assert ended.code == 0, ended.err
    [apart] = (tmp_path / "jobs").glob("other-*")
    assert "--new-since" not in latentscale("compare", apart, nightly).out
    report = json.loads(latentscale("report", apart, nightly, "--format", "json").out)
    assert len(report["opening"]["look"]) == 3
    assert report["opening"]["look_said"] == NEW_ROWS


def test_rows_without_an_id_are_new_and_named_by_number(tmp_path: Path, latentscale: Any) -> None:
    rows = np.random.default_rng(9).normal(size=(60, 6)).astype("f4")
    ids = [f"{i:03}" for i in range(60)]
    ids[5] = ids[6] = ""
    release = corpus_of(tmp_path, "release", ids, None, rows)
    more = np.concatenate([rows, rows[5:6], rows[5:6]])
    nightly = corpus_of(tmp_path, "nightly", [*ids, "", ""], None, more)
    assert nightly.manifest.repeated_ids is not None
    assert nightly.manifest.repeated_ids.count == 0
    for corpus, name in ((release, "release"), (nightly, "nightly")):
        given = ("--name", name, "--measures", "duplicates", "--output", tmp_path / "jobs")
        assert latentscale("run", corpus.url, *given, "-o", "cluster.kind=serial").code == 0
    (old,) = (tmp_path / "jobs").glob("release-*")
    (new,) = (tmp_path / "jobs").glob("nightly-*")
    only = ("--only", "exact-duplicates", "--new-since", old, "--json")
    found = [json.loads(line) for line in latentscale("rows", new, *only).out.splitlines()]
    assert [(row["row"], row["duplicate_of"]) for row in found] == [(60, "row 5"), (61, "row 5")]
    (tmp_path / "wanted.txt").write_text("003\n\n007\n")
    wanted = ("--ids", tmp_path / "wanted.txt")
    assert latentscale("subset", nightly.url, tmp_path / "some.zarr", *wanted).code == 0
    assert open_corpus(str(tmp_path / "some.zarr")).texts("ids") == ["003", "007"]
    (tmp_path / "none.txt").write_text("\n\n")
    none = latentscale("subset", nightly.url, tmp_path / "n.zarr", "--ids", tmp_path / "none.txt")
    assert "none.txt: it names no ids; write one per line" in none.err


def test_without_ids_rows_that_stand_out_may_be_old(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "rows", None)
    ours, theirs = job_on(corpus, "nightly"), job_on(corpus, "release")
    assert shown(naming(ours, None), naming(theirs, None)) == (["row 0"], WITHOUT_IDS)
    assert shown(naming(ours, None), naming(theirs, None, count=3)) == (["row 0"], WITHOUT_IDS)
