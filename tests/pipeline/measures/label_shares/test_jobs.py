"""The shares of labels in jobs: counted, compared, in the verdict and on the page."""

import json
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.measures.label_shares import collect, counts
from latentscale_pipeline.report import FORMATS, job_report
from latentscale_pipeline.report.verdict import look_commands
from tests.conftest import Ended
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


def run(folder: Path, corpus: str, reference: str, **more: Any) -> Any:
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
    (score,) = (row for row in document["scores"] if row["measure"] == "label_shares")
    assert (score["label"], score["value"]) == ("law", counted["law"] / n)
    assert score["expected"]["p"] == pytest.approx(
        len(part["labels"]) * part["labels"][0]["p"], rel=1e-9
    )
    verdict = document["verdict"]
    assert verdict["value"] == "differs"
    assert verdict["reason"].startswith(f"Label law: {counted['law']} of 1,500 rows, where ")
    report = job_report(finished.results)
    assert report.opening is not None
    (row,) = (row for row in report.opening.rows if row.differs)
    assert row.title == "Rows of the least usual label (label law)"
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
    (command,) = look_commands(finished.results, finished.store.url)
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


def test_without_labels_on_both_sides_nothing_is_compared(tmp_path: Path) -> None:
    corpus = store(tmp_path, "corpus", draw(1, 60, WEIGHTS), 1, 60)
    reference = store(tmp_path, "reference", None, 2, 60)
    document = run(tmp_path, corpus, reference).results.document()
    assert "label_shares" not in document["measures"]
    assert not [row for row in document["scores"] if row["measure"] == "label_shares"]
    asked = {"vendi": {"kernels": ["cosine"], "orders": [1]}, "label_shares": {}}
    document = run(tmp_path, corpus, reference, measures=asked).results.document()
    assert document["measures"]["label_shares_reason"] == (
        "labels are counted only if all corpora have labels and no rows are paired"
    )


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
