"""A map through a job: which rows are drawn and marked, how they are named, when there is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.measures.projection import collect, report
from latentscale_pipeline.report import job_report
from tests.conftest import Ended
from tests.support.jobs import results_of, run_here
from tests.support.results_documents import read

Command = Callable[..., Ended]


def run(folder: Path, measures: str = "projection: {}", keys: str = "", **corpora: Any) -> Any:
    folder.mkdir()
    text = f"name: m\noutput: {folder}\ncluster: {{kind: serial}}\n{keys}"
    text += f"measures: {{{measures}}}\n"
    for role, rows in corpora.items():
        path = folder / f"{role}.npy"
        if isinstance(rows, Path):
            path = rows
        else:
            np.save(path, rows.astype("f4"))
        text += f"{role}: {path}\n"
    (folder / "job.yaml").write_text(text)
    run_here(folder / "job.yaml")
    return results_of(folder)


def section(results: Any) -> Any:
    report = job_report(read(results))
    return next((each for each in report.sections if each.key == "projection"), None)


def grouped(generator: np.random.Generator, n: int, d: int = 16) -> Any:
    centres = 3.0 * np.random.default_rng(0).standard_normal((5, d))
    return centres[generator.integers(5, size=n)] + generator.standard_normal((n, d))


def test_equally_many_rows_of_each_corpus_are_drawn(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    corpus, reference = grouped(generator, 900), grouped(generator, 120)
    results = run(tmp_path / "job", "projection: {rows: 400}", corpus=corpus, reference=reference)
    found = results["measures"]["projection"]
    assert found["reference"]["row"] == list(range(120))
    rows = found["corpus"]["row"]
    assert rows == sorted(set(rows))
    assert len(rows) == 200
    assert set(rows) <= set(range(900))
    both = [found[role] for role in ("corpus", "reference")]
    at = np.concatenate([np.column_stack([each["x"], each["y"]]) for each in both])
    assert at.min() >= 0
    assert at.max() <= 1000
    # Near rows are near on the map: nearest on the map, and usually of one group.
    drawn = np.concatenate([corpus[rows], reference])
    unit = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    near = [np.argsort(d, axis=1, kind="stable")[:, 1:11] for d in (-(unit @ unit.T), _apart(at))]
    kept = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*near, strict=True)])
    assert found["kept"] == pytest.approx(kept, abs=0.03)
    [figure] = section(results).figures
    assert "200 random rows of the corpus and all 120 rows of the reference" in figure.caption


def _apart(places: Any) -> Any:
    return ((places[:, None] - places[None]).astype(float) ** 2).sum(axis=2)


def test_rows_to_look_at_are_marked_where_they_or_the_nearest_drawn_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(2)
    reference = grouped(generator, 600)
    corpus = grouped(generator, 1500)
    far = [3, 700, 1499]
    corpus[far] = 8.0 * generator.standard_normal((3, 16))
    corpus[11] = corpus[10]
    both = "duplicates: {}, projection: {rows: 300}"
    results = run(tmp_path / "job", both, corpus=corpus, reference=reference)
    found = results["measures"]["projection"]
    marked = {(row["of"], row["row"]): row for row in found["marked"]}
    named = {(each["of"], row["row"]) for each in results["rows"] for row in each["rows"]}
    assert set(marked) == named
    assert "near-duplicates" in marked["corpus", 11]["reasons"]
    assert set(far) & {row for of, row in marked if of == "corpus"}
    drawn = [(role, row) for role in ("corpus", "reference") for row in found[role]["row"]]
    places = [
        place
        for role in ("corpus", "reference")
        for place in zip(found[role]["x"], found[role]["y"], strict=True)
    ]
    rows = {"corpus": corpus.astype("f4"), "reference": reference.astype("f4")}
    known = np.array([rows[role][row] for role, row in drawn], float)
    known /= np.linalg.norm(known, axis=1, keepdims=True)
    for (role, row), mark in marked.items():
        own = rows[role][row].astype(float)
        at = drawn.index((role, row)) if (role, row) in drawn else int((known @ own).argmax())
        assert (mark["x"], mark["y"]) == places[at]
    [figure] = section(results).figures
    assert f"marked: {len(named)} rows to look at" in figure.caption
    assert figure.panels[0].curves[0].name == "rows to look at"
    monkeypatch.setattr(collect, "READ_BYTES", 0)
    large = run(tmp_path / "large", both, corpus=corpus, reference=reference)
    marked_there = large["measures"]["projection"]["marked"]
    assert {(row["of"], row["row"]) for row in marked_there} == named & set(drawn)


def test_ids_labels_and_texts_are_told(tmp_path: Path, latentscale: Command) -> None:
    rows = grouped(np.random.default_rng(3), 150)
    np.save(tmp_path / "rows.npy", rows.astype("f4"))
    for name, words in (("ids", "id"), ("labels", "kind"), ("texts", "<b>" + "word " * 40)):
        lines = [f"{words}{row}" if name != "labels" else f"{words}{row % 3}" for row in range(150)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    options = [f"--{name}={tmp_path / name}.txt" for name in ("ids", "labels", "texts")]
    target = tmp_path / "rows.zarr"
    assert latentscale("ingest", tmp_path / "rows.npy", target, *options).code == 0
    results = run(tmp_path / "job", corpus=target)
    found = results["measures"]["projection"]["corpus"]
    assert found["id"] == [f"id{row}" for row in found["row"]]
    assert found["label"] == [f"kind{row % 3}" for row in found["row"]]
    assert {len(text) for text in found["text"]} == {60}
    [figure] = section(results).figures
    told = figure.panels[0].curves[-1].texts[5]
    assert told.startswith("id5 · kind2 · <b>word word")
    assert len(told) < 80


def test_without_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    few = run(tmp_path / "few", corpus=grouped(generator, 19))
    assert few["measures"]["projection"] is None
    assert few["measures"]["projection_reason"] == "a map needs 20 rows or more"
    assert section(few).notes == ["Not computed: a map needs 20 rows or more."]
    rows = run(tmp_path / "rows", corpus=grouped(generator, 200))
    monkeypatch.setattr(report, "MIN_KEPT", 0.99)
    shown = section(rows)
    assert not shown.figures
    assert shown.notes[0].startswith("The map isn't shown: it would keep only ")
    other = run(
        tmp_path / "other", corpus=grouped(generator, 60), reference=grouped(generator, 60, 9)
    )
    assert "reference" not in other["measures"]["projection"]


def test_labels_have_no_maps_and_another_seed_gives_another(
    tmp_path: Path, latentscale: Command
) -> None:
    rows = grouped(np.random.default_rng(5), 300)
    drawn = [
        run(tmp_path / f"job-{seed}", "projection: {rows: 100}", f"seed: {seed}\n", corpus=rows)
        for seed in (1, 2)
    ]
    first, second = (each["measures"]["projection"]["corpus"]["row"] for each in drawn)
    assert first != second
    stages = [timing["stage"] for timing in drawn[0]["timings"]]
    assert {"projection-rows-corpus", "projection"} <= set(stages)
    assert {row["measure"] for row in drawn[0]["scores"]} <= {"duplicates"}
    labels = ["a", "b"] * 150
    (tmp_path / "labels.txt").write_text("\n".join(labels) + "\n")
    np.save(tmp_path / "rows.npy", rows.astype("f4"))
    target = tmp_path / "rows.zarr"
    with_labels = [target, "--labels", tmp_path / "labels.txt"]
    assert latentscale("ingest", tmp_path / "rows.npy", *with_labels).code == 0
    by_label = run(
        tmp_path / "labels", "projection: {}, vendi: {}", "group_by: labels\n", corpus=target
    )
    assert [t["stage"] for t in by_label["timings"] if "projection" in t["stage"]] == stages[-2:]
