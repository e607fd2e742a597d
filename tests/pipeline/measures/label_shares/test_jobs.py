"""The shares of labels in jobs: counted, compared, in the verdict and on the page."""

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.compare.columns import side_by_side
from latentscale_pipeline.compare.gate_checks import check_gates
from latentscale_pipeline.compare.gates import gates_of
from latentscale_pipeline.compare.jobs import compare
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.measures.label_shares import collect, counts
from latentscale_pipeline.measures.label_shares.spelling import note_spelling
from latentscale_pipeline.report import FORMATS, job_report
from latentscale_pipeline.report.verdict import look_commands
from tests.conftest import Ended
from tests.support.comparisons import job, row
from tests.support.jobs import run_here
from tests.support.results_documents import check_results

HOSTILE = "<script>alert(1)</script>"


def draw(seed: int, n: int, weights: dict[str, float]) -> list[str]:
    generator = np.random.default_rng(seed)
    share = np.array(list(weights.values()))
    return [str(label) for label in generator.choice(list(weights), size=n, p=share / share.sum())]


def store(folder: Path, name: str, labels: list[str] | None, seed: int, n: int) -> str:
    rows = np.random.default_rng(seed).normal(size=(n, 6)).astype("f4")
    np.save(folder / f"{name}.npy", rows)
    given: dict[str, Any] = {}
    if labels is not None:
        (folder / f"{name}.txt").write_text("\n".join(labels) + "\n")
        given["labels"] = str(folder / f"{name}.txt")
    target = str(folder / f"{name}.zarr")
    return ingest([str(folder / f"{name}.npy")], target, shard_bytes=2400, **given).url


def run(folder: Path, corpus: str, reference: str | None, **more: Any) -> Any:
    described = {
        "name": "labels",
        "corpus": corpus,
        "reference": reference,
        "output": str(folder / "jobs"),
        "measures": {"vendi": {"kernels": ["cosine"], "orders": [1]}},
        "cluster": {"kind": "serial"},
        **more,
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(described))
    return run_here(path)


def test_a_gate_names_any_label(tmp_path: Path, latentscale: Callable[..., Ended]) -> None:
    """Also one whose share is usual, and which is therefore no score of the comparison."""
    shares = {"law": 5.0, "poetry": 3.0, "prose": 2.0}
    folders = {}
    for seed, (name, weights) in enumerate(
        {"usual": shares, "alike": shares, "cut": {**shares, "prose": 0.7}}.items()
    ):
        corpus = store(tmp_path, name, draw(seed, 1500, weights), seed, 1500)
        output = str(tmp_path / name)
        measures = {"duplicates": {}, "vendi": {"kernels": ["cosine"], "labels": True}}
        job = run(tmp_path, corpus, None, output=output, name=name, measures=measures)
        folders[name] = job.store.url

    def gated(job: str, **gate: Any) -> Ended:
        chosen = {"measure": "label_shares", **gate}
        gates = {"gates": [{key: value for key, value in chosen.items() if value is not None}]}
        (tmp_path / "gates.yaml").write_text(json.dumps(gates))
        return latentscale(
            "compare", folders[job], folders["usual"], "--gates", tmp_path / "gates.yaml"
        )

    for label in shares:
        for limit in ({"max_drop": 0.3}, {"p_below": 0.001}, {"min": 0.1}):
            ended = gated("alike", label=label, **limit)
            assert ended.code == 0, ended.err
    for limit, said in (
        ({"max_drop": 0.3}, "fell by "),
        ({"p_below": 0.001}, "is expected at 1,500 rows (p <0.001)"),
        ({"min": 0.1}, "below the min of 0.1"),
    ):
        ended = gated("cut", label="prose", **limit)
        assert ended.code == 1, ended.err
        assert said in ended.err
    # The rows that are missing are in the baseline.
    compared = latentscale("compare", folders["cut"], folders["usual"]).out
    [command] = [line for line in compared.splitlines() if 'label == "prose"' in line]
    assert command.startswith(f"rows      latentscale rows {folders['usual']} --where ")
    page = latentscale("report", folders["cut"], folders["usual"], "--format", "md").out
    assert f"latentscale rows {folders['usual']} --where 'label == \"prose\"'" in page
    shown = latentscale(*shlex.split(command)[2:], "--limit", 1)
    assert "prose" in shown.out
    # Without a label every one is meant, judged among all where chance is asked for.
    for limit in ({"max_drop": 0.3}, {"min": 0.1}, {"max_drop": 0.1, "significant": True}):
        assert gated("alike", **limit).code == 0
        ended = gated("cut", **limit)
        assert (ended.code, "label prose" in ended.err) == (1, True), ended.err
    assert gated("alike", max=0.3).code == 1
    # So does a gate that names a label, beside other scores of it.
    of_label = {"measure": None, "label": "prose", "max_drop": 0.3}
    assert gated("alike", **of_label).code == 0
    ended = gated("cut", **of_label)
    assert "share (label prose) (corpus) fell by" in ended.err
    unknown = gated("alike", label="verse", min=0.1)
    assert unknown.code == 2
    assert "has label verse; no row of either corpus may have it" in unknown.err
    # The command to list them isn't given where they aren't there any more.
    store(tmp_path, "other", draw(9, 1500, shares), 9, 1500)
    shutil.rmtree(tmp_path / "usual.zarr")
    shutil.move(tmp_path / "other.zarr", tmp_path / "usual.zarr")
    assert "prose" in latentscale("compare", folders["cut"], folders["usual"]).out
    assert command not in latentscale("compare", folders["cut"], folders["usual"]).out


def test_drift_counts_the_jobs_before_whatever_is_unusual_today(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    shares = {"law": 5.0, "poetry": 3.0, "prose": 2.0}
    folders = []
    for seed, weights in enumerate((shares, shares, {**shares, "prose": 0.7})):
        corpus = store(tmp_path, f"c{seed}", draw(seed, 1500, weights), seed, 1500)
        measures: dict[str, Any] = {"duplicates": {}}
        job = run(
            tmp_path, corpus, None, output=str(tmp_path / "jobs"), name="s", measures=measures
        )
        folders.append(job.store.url)
    assert latentscale("history", "add", tmp_path / "h", *folders[:2]).code == 0

    def drifts(**gate: Any) -> Ended:
        (tmp_path / "gates.yaml").write_text(json.dumps({"gates": [{**gate, "drift": {}}]}))
        command = ("compare", folders[2], folders[1], "--gates", tmp_path / "gates.yaml")
        return latentscale(*command, "--history", tmp_path / "h")

    whole = drifts()
    assert "(2 scores, 2 earlier jobs" in whole.out + whole.err
    # Other limits of the gate hold for the shares, too.
    cut = drifts(of="corpus", max_drop=0.3)
    assert (cut.code, "label prose) (corpus) fell by" in cut.err) == (1, True), cut.err
    for gate in ({"measure": "label_shares"}, {"label": "law"}):
        refused = drifts(**gate)
        assert refused.code == 2
        assert "drift on the share of a label" in refused.err


def test_a_gate_on_a_label_where_the_baseline_has_none(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    shares = {"law": 5.0, "poetry": 3.0}
    labelled = [store(tmp_path, f"c{s}", draw(s, 800, shares), s, 800) for s in (0, 1)]
    plain = store(tmp_path, "plain", None, 2, 800)
    jobs = [
        run(tmp_path, *of, name="s", measures={"duplicates": {}})
        for of in (labelled, (plain, None))
    ]

    def gated(**gate: Any) -> Ended:
        (tmp_path / "gates.yaml").write_text(json.dumps({"gates": [{"label": "law", **gate}]}))
        return latentscale(
            "compare", *(job.store.url for job in jobs), "--gates", tmp_path / "gates.yaml"
        )

    assert gated(min=0.5).code == 0
    assert gated(max=0.5).code == 1
    assert gated(p_below=1e-6).code == 0
    assert "no such score" in gated(max_drop=0.5).err


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside a larger change"])
def test_a_label_that_a_gate_names_is_judged_alone(others: int) -> None:
    """Whether or not it is among the least usual labels that a comparison shows."""
    labels = {f"l{i:02}": 100 for i in range(40)}
    changed = {**labels, "l01": 67, **({"l02": 50} if others else {})}

    def finished(name: str, counts: dict[str, int]) -> Any:
        rows = sum(counts.values())
        part = [{"label": label, "rows": n} for label, n in counts.items()]
        measures = {"label_shares": {"labels": part, "few": 0, "few_labels": {}}}
        return job(row(1.0), measures=measures, n=rows, name=name)

    comparison = compare(finished("nightly", changed), finished("release", labels))

    def failed(**gate: Any) -> bool:
        named = gates_of([{"label": "l01", "p_below": 0.05, **gate}], "gates.yaml")
        [result] = check_gates(named, comparison, "gates.yaml")
        return not result.passed

    assert failed(measure="label_shares")
    assert not failed(measure="label_shares", p_below=0.001)
    assert not failed(measure="label_shares", label="l05")


def test_several_jobs_show_a_label_that_is_unusual_in_one_of_them() -> None:
    """The others have it too, and an empty cell would say that they hadn't."""

    def finished(name: str, **counts: int) -> Any:
        part = [{"label": label, "rows": n} for label, n in counts.items()]
        measures = {"label_shares": {"labels": part, "few": 0, "few_labels": {}}}
        return job(row(1.0), measures=measures, n=600, name=name)

    usual = finished("release", owl=200, dog=200, cat=200)
    jobs = [finished("a", owl=10, dog=300, cat=290), finished("b", owl=204, dog=198, cat=198)]
    columns = side_by_side([compare(each, usual) for each in jobs], ["a", "b", "release"])
    (owl,) = (cells for cells in columns.rows if "owl" in cells[""])
    assert [owl[name].partition(" ")[0] for name in columns.names] == ["33.3", "1.67", "34.0"]
    assert ("*" in owl["a"], "*" in owl["b"]) == (True, False)
    # What chance explains among all labels isn't marked, and what nobody has is 0.
    new = finished("c", owl=198, dog=236, cat=110, fox=56)
    columns = side_by_side([compare(each, usual) for each in (*jobs, new)], ["a", "b", "c", "r"])
    (dog,) = (cells for cells in columns.rows if "dog" in cells[""])
    assert ("*" in dog["a"], "*" in dog["c"]) == (True, False)
    (fox,) = (cells for cells in columns.rows if "fox" in cells[""])
    assert (fox["b"], fox["r"], "*" in fox["c"]) == ("0 %", "0 %", True)


def test_a_gate_on_any_label_asks_whether_it_differs_from_the_reference(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    """Also where other labels are less usual: only the five least usual are scores."""
    counts = (380, 20, 360, 40, 340, 60, 330, 70, 310, 90)
    ours = [f"l{place}" for place, count in enumerate(counts) for _ in range(count)]
    theirs = [f"l{place}" for place in range(10) for _ in range(200)]
    finished = run(
        tmp_path,
        store(tmp_path, "corpus", ours, 3, 2000),
        store(tmp_path, "reference", theirs, 4, 2000),
    )
    named = {score.label for score in finished.results.scores if score.measure == "label_shares"}
    assert "l9" not in named
    p = {each["label"]: each["p"] for each in finished.results.document()["measures"][
        "label_shares"]["labels"]}  # fmt: skip
    for label, code in (("l0", 1), ("l9", 1)):
        gate = {"measure": "label_shares", "label": label, "p_below": 0.01}
        (tmp_path / "gates.yaml").write_text(json.dumps({"gates": [gate]}))
        folder = finished.store.url
        ended = latentscale("compare", folder, folder, "--gates", tmp_path / "gates.yaml")
        assert (p[label] < 0.01, ended.code) == (True, code), ended.err
        assert f"share (label {label}) (corpus) is {counts[int(label[1])]}, where " in ended.err


WEIGHTS = {"law": 5.0, "poetry": 3.0, HOSTILE: 2.0, "": 1.0, **dict.fromkeys("abcdef", 0.5)}


def test_a_label_that_was_cut_is_named_first(tmp_path: Path) -> None:
    n, m = 1500, 1200
    ours, theirs = draw(1, n, WEIGHTS | {"law": 2.5, "only ours": 0.3}), draw(2, m, WEIGHTS)
    corpus = store(tmp_path, "corpus", ours, 3, n)
    reference = store(tmp_path, "reference", theirs, 4, m)
    finished = run(tmp_path, corpus, reference)
    document = finished.results.document()
    check_results(document)
    counted, usual = Counter(ours), Counter(theirs)
    part = document["measures"]["label_shares"]
    assert {each["label"]: each["rows"] for each in part["labels"]} == {
        label: count for label, count in counted.items() if count + usual.get(label, 0) >= 20
    }
    assert all(each["reference_rows"] == usual.get(each["label"], 0) for each in part["labels"])
    assert [each["p"] for each in part["labels"]] == sorted(each["p"] for each in part["labels"])
    score = next(row for row in document["scores"] if row["measure"] == "label_shares")
    assert (score["label"], score["value"]) == ("law", counted["law"] / n)
    assert score["expected"]["p"] == pytest.approx(
        len(part["labels"]) * part["labels"][0]["p"], rel=1e-9
    )
    verdict = document["verdict"]
    assert verdict["value"] == "differs"
    assert verdict["reason"].startswith(f"Label law: {counted['law']} of 1,500 rows, where ")
    report = job_report(finished.results)
    assert report.opening is not None
    row = next(row for row in report.opening.rows if row.differs)
    assert row.title == "Rows (label law)"
    (section,) = (part for part in report.sections if part.key == "label_shares")
    (figure,) = section.figures
    assert figure.panels[0].places[-1] == "law"
    assert "<script>" not in FORMATS["html"](report).replace('<script>"use', "")


@pytest.mark.parametrize(("more", "of"), [(6.0, "corpus"), (0.1, "reference")])
def test_the_command_lists_the_rows_of_the_label(
    tmp_path: Path, latentscale: Callable[..., Ended], more: float, of: str
) -> None:
    hostile = 'it\'s "a" <b>'
    weights = {"law": 5.0, hostile: 1.0}
    labels = {
        "corpus": draw(1, 800, weights | {hostile: more}),
        "reference": draw(2, 800, weights),
    }
    urls = {
        role: store(tmp_path, role, labels[role], place, 800) for place, role in enumerate(labels)
    }
    finished = run(tmp_path, **urls, measures={"duplicates": {}})
    command, *_ = look_commands(finished.results, finished.store.url)
    ended = latentscale(*shlex.split(command)[1:], "--json")
    assert ended.code == 0, ended.err
    found = [json.loads(line) for line in ended.out.splitlines()]
    assert {row["label"] for row in found} in ({hostile}, {"law"})
    (label,) = {row["label"] for row in found}
    listed = "reference" if "--of reference" in command else "corpus"
    assert [row["row"] for row in found] == [
        row for row, own in enumerate(labels[listed]) if own == label
    ]
    assert label == "law" or listed == of


def test_equal_sources_give_no_alarm_and_labels_are_part_of_the_job(tmp_path: Path) -> None:
    n = 600
    reference = store(tmp_path, "reference", draw(6, n, WEIGHTS), 6, n)
    ids = set()
    for seed in (7, 8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        corpus = store(folder, "corpus", draw(seed, n, WEIGHTS), 9, n)
        results = run(folder, corpus, reference).results
        ids.add(results.job.id)
        (score,) = (row for row in results.scores if row.measure == "label_shares")
        assert score.expected is not None
        assert score.expected.p > 0.05
        assert results.verdict is not None
        assert results.verdict.value == "no_difference_found"
    assert len(ids) == 2, "the same vectors with other labels"


def test_labels_that_only_one_corpus_has_are_not_compared_and_the_verdict_says_so(
    tmp_path: Path, latentscale: Callable[..., Ended]
) -> None:
    labels = draw(1, 200, WEIGHTS)
    with_labels = store(tmp_path, "corpus", labels, 1, 200)
    without = store(tmp_path, "reference", None, 2, 200)
    said = "Labels weren't compared: the {} has none."
    finished = run(tmp_path, with_labels, without)
    document = finished.results.document()
    assert not [row for row in document["scores"] if row["measure"] == "label_shares"]
    part = document["measures"]["label_shares"]
    counted = Counter(labels)
    assert {each["label"]: each["rows"] for each in part["labels"]} | part["few_labels"] == counted
    assert all(each["rows"] >= 20 for each in part["labels"])
    assert document["verdict"]["also"].endswith(said.format("reference"))
    shown = latentscale("report", finished.store.url, "--format", "md").out
    assert said.format("reference") in " ".join(shown.split())
    document = run(tmp_path, without, with_labels).results.document()
    assert document["measures"]["label_shares"] is None
    assert document["verdict"]["also"].endswith(said.format("corpus"))
    asked = {"vendi": {"kernels": ["cosine"], "orders": [1]}, "label_shares": {}}
    document = run(tmp_path, without, without, measures=asked).results.document()
    assert document["measures"]["label_shares_reason"] == "the corpus has no labels"


@pytest.mark.parametrize(
    ("label", "other"), [("1", "1.0"), ("true", "True"), ("new york", "New  York"), ("ｆｒ", "fr")]
)
def test_labels_that_differ_in_spelling_alone_are_named(label: str, other: str) -> None:
    said = (
        f"Labels were compared as they are spelt, and '{label}' of the corpus may be '{other}' of "
        "the reference{}: if so, spell them alike."
    )
    assert note_spelling({label: 3, "de": 2}, {other: 3, "de": 2}) == said.format("")
    more = note_spelling([label, "～a", "～b"], [other, "～A", "～B"])
    assert more == said.format(", and 2 more such pairs")
    # A corpus may have both spellings.
    assert note_spelling([label, other, "de"], [other, "de"]) == said.format("")
    assert note_spelling([label, "de"], [label, other, "de"]) == said.format("")
    # Versions are no numbers.
    assert note_spelling(["1.1", "2"], ["2", "1.10", "v1.1"]) is None


def test_a_verdict_on_labels_says_that_their_spelling_differs(tmp_path: Path) -> None:
    labels = draw(1, 200, {"0": 0.5, "1": 0.5})
    corpus = store(tmp_path, "corpus", [f"{label}.0" for label in labels], 1, 200)
    reference = store(tmp_path, "reference", labels, 2, 200)
    verdict = run(tmp_path, corpus, reference).results.verdict
    assert verdict is not None
    assert verdict.value == "differs"
    assert "'0.0' of the corpus may be '0' of the reference, and 1 more such pair: if" in str(
        verdict.also
    )


def test_every_label_that_is_not_usual_is_named_with_its_direction(tmp_path: Path) -> None:
    usual = dict.fromkeys("abcdefghij", 60)
    ours = usual | {"b": 10, "d": 125, "h": 20}
    labels = [
        [name for name, count in each.items() for _ in range(count)] for each in (ours, usual)
    ]
    corpus = store(tmp_path, "corpus", labels[0], 1, len(labels[0]))
    reference = store(tmp_path, "reference", labels[1], 2, len(labels[1]))
    results = run(tmp_path, corpus, reference, measures={"duplicates": {}}).results
    shares = [score for score in results.scores if score.measure == "label_shares"]
    assert [score.label for score in shares] == ["b", "d", "h"]
    verdict = results.verdict
    assert verdict is not None
    assert verdict.reason.startswith("Label b: 10 of 575 rows, where ")
    assert verdict.also is not None
    assert "Higher than expected: Rows (label d). " in verdict.also
    assert "Lower than expected: Rows (label h). " in verdict.also
    commands = look_commands(results, "job")
    assert [shlex.split(each)[-1] for each in commands[:3]] == [
        f'label == "{name}"' for name in "bdh"
    ]


def test_labels_that_name_single_rows_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (counts, collect):
        monkeypatch.setattr(module, "MAX_LABELS", 50)
    names = [f"row {row}" for row in range(60)]
    corpus = store(tmp_path, "corpus", names, 1, 60)
    reference = store(tmp_path, "reference", draw(2, 60, WEIGHTS), 2, 60)
    found = read_job(run(tmp_path, corpus, reference).store.url).results
    assert found.measures["label_shares"] is None
    assert found.measures["label_shares_reason"] == "there are more than 50 labels"
    assert found.verdict is not None
    assert "Labels weren't compared: there are more than 50 labels." in (found.verdict.also or "")
