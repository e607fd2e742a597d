"""What reports say: parts that a job's page has beside its scores, comparisons, other formats."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.sparse import csr_array

from latentscale.heat.trace import dense_heat_trace, normalise
from latentscale_pipeline.compare.jobs import compare
from latentscale_pipeline.compare.report import comparison_report
from latentscale_pipeline.corpus import open_corpus
from latentscale_pipeline.measures.finished_job import FinishedJob
from latentscale_pipeline.measures.heat.report import null_models
from latentscale_pipeline.report import FORMATS, Report, figure_files, job_report
from latentscale_pipeline.report.labels import label_summary
from latentscale_pipeline.results.model import SHARE_OF_ROWS, Score
from latentscale_pipeline.views.content import Figure, Section, Table
from tests.conftest import Ended
from tests.support.comparisons import job, row, write_job
from tests.support.jobs import results_of, run_here
from tests.support.report_documents import HOSTILE, LABELS, full_results, later
from tests.support.results_documents import check_results, example_results, finished_job, read


def section(report: Report, key: str) -> Section:
    return next(part for part in report.sections if part.key == key)


def figure(part: Section, key: str) -> Figure:
    return next(found for found in part.figures if found.key == key)


def table(part: Section, start: str) -> Table:
    return next(found for found in [*part.tables, *part.folds] if found.caption.startswith(start))


def test_null_models_are_those_that_traces_are_normalised_by() -> None:
    times, n, edges = np.geomspace(0.1, 10, 5), 500, 2000
    heat = dense_heat_trace(csr_array((n, n)), times)  # without edges: 1 at every time
    known = read(example_results()).part("heat").corpus
    graph = known.graph.model_copy(update={"edges": edges})
    given = {"times": times.tolist(), "graph": graph, "normalization": "empty"}
    trace = known.model_copy(update=given)
    drawn = {style.name: heat for style, heat in null_models(trace, n)}
    for name, kind in (("complete graph", "complete"), ("random graph", "er")):
        # A trace of 1 per vertex divided by a null model is that model's inverse.
        divided = normalise(heat, kind, mean_degree=2 * edges / n).trace  # type: ignore[arg-type]
        assert drawn[name] == pytest.approx(1 / divided)
    assert null_models(trace.model_copy(update={"laplacian": "unnormalized"}), n) == []
    ((style, _),) = null_models(trace.model_copy(update={"normalization": "complete"}), n)
    assert style.name == "random graph"


def test_rarefaction_ends_at_the_value_of_all_rows() -> None:
    results = full_results()
    report = job_report(read(results))
    for key, of, measure in (
        ("magnitude-rarefaction", "t = 0.329", "magnitude"),
        ("vendi-0-rarefaction", "order 1", "vendi"),
    ):
        (panel,) = figure(section(report, measure), key).panels
        own = [curve for curve in panel.curves if curve.name == "corpus"]
        (curve,) = (curve for curve in own if set(curve.texts) == {of})
        (end,) = (curve for curve in own if curve.texts == [f"{of}, extrapolated"])
        assert curve.x == [112, 224, 448]
        found = results["measures"][measure]["corpus"]
        whole = found["value"][-1] if measure == "magnitude" else found[2]["value"]
        assert (end.x, end.y, end.end) == ([896], [whole], of)


def test_labels_have_a_table_and_a_figure_of_their_own() -> None:
    report = job_report(read(full_results()))
    vendi = section(report, "vendi")
    found = table(vendi, "Scores by label")
    assert [cells[0] for cells in found.rows] == list(LABELS)
    assert [cells[1] for cells in found.rows] == ["300", "250", "200"]
    assert found.rows[0][found.header.index("cosine, order 1")] == "2.11871"
    for numbers in section(report, "numbers").tables:
        assert not [cells for cells in numbers.rows if "label" in cells[0]]
    (panel,) = figure(vendi, "vendi-labels").panels
    (curve,) = panel.curves
    assert panel.turned
    assert list(panel.places) == [LABELS[0], f"{HOSTILE[:31]}…", LABELS[2]]
    assert curve.y == pytest.approx([4.237412 * share for share in (0.5, 0.6, 0.7)], rel=1e-5)


def test_components_and_outliers_name_rows() -> None:
    geomca = section(job_report(read(full_results())), "geomca")
    components = table(geomca, "The 15 largest components")
    assert components.header[-2:] == (
        "rows of the reference, such as",
        "rows of the corpus, such as",
    )
    assert components.rows[2][-2:] == ("row 7", "doc-2")
    assert [cells[2] for cells in table(geomca, "Isolated").rows] == [HOSTILE, "none"]


def script(what: str) -> str:
    return f"<script>alert('{what}')</script>"


def test_examples_are_members_and_carry_their_ids(
    tmp_path: Path, latentscale: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the job, its labels and ids are called: each is a script, from file to page."""
    generator = np.random.default_rng(3)
    centres = 40.0 * np.eye(3, 6)
    for role, counts in (("corpus", (30, 20, 1)), ("reference", (30, 20, 0))):
        rows = np.repeat(centres, counts, axis=0)
        np.save(tmp_path / f"{role}.npy", (rows + generator.normal(size=rows.shape)).astype("f4"))
    tame = [f"doc {row}" for row in range(50)]
    (tmp_path / "ids.txt").write_text("\n".join([*tame, script("id")]))
    reference = "<script>alert('corpus')<script>.zarr"
    for role, others in (("corpus", 21), ("reference", 20)):
        labels = f"{script('label')}\n" * 30 + "tame\n" * others
        (tmp_path / f"{role}.txt").write_text(labels)
    monkeypatch.chdir(tmp_path)
    made = latentscale(
        *("ingest", tmp_path / "corpus.npy", tmp_path / "corpus.zarr"),
        *("--ids", tmp_path / "ids.txt", "--labels", tmp_path / "corpus.txt"),
    )
    assert made.code == 0, made.err
    made = latentscale("ingest", "reference.npy", reference, "--labels", "reference.txt")
    assert made.code == 0, made.err
    config = tmp_path / "job.yaml"
    job = {"name": script("name"), "output": str(tmp_path / "jobs"), "cluster": {"kind": "serial"}}
    job |= {"corpus": str(tmp_path / "corpus.zarr"), "reference": reference}
    job["measures"] = {
        "geomca": {"epsilon": 12.0, "delta": 0.1},
        "vendi": {"kernels": ["cosine"], "orders": [1], "labels": True},
    }
    config.write_text(json.dumps(job))
    run_here(config)
    results = results_of(tmp_path / "jobs")
    check_results(results)
    geomca = results["measures"]["geomca"]
    first, second, alone = geomca["components"]
    assert open_corpus(str(tmp_path / "corpus.zarr")).texts("ids") is not None
    assert [found["row"] for found in first["examples"]["corpus"]] == [0, 14, 29]
    assert [found["id"] for found in first["examples"]["corpus"]] == ["doc 0", "doc 14", "doc 29"]
    assert second["examples"]["reference"] == [{"row": 30}, {"row": 40}, {"row": 49}]
    assert alone["examples"] == {"corpus": [{"row": 50, "id": script("id")}], "reference": []}
    assert geomca["outlier_examples"]["corpus"] == [{"row": 50, "id": script("id")}]
    (page,) = (path.read_text() for path in (tmp_path / "jobs").glob("*/report.html"))
    assert "<script>alert" not in page
    for what in ("name", "label", "id"):
        assert f"&lt;script&gt;alert(&#39;{what}&#39;)&lt;/script&gt;" in page, what
    assert "&lt;script&gt;alert(&#39;corpus&#39;)&lt;script&gt;.zarr" in page


def test_a_comparison_says_what_changed_most() -> None:
    ours = [row(2.0, 0.1, sampling_error=0.01), row(9.9, score="other", sampling_error=0.01)]
    theirs = [row(3.0, 0.1, sampling_error=0.01), row(10.0, score="other", sampling_error=0.01)]
    jobs = job(*ours), job(*theirs, name="release", fingerprint="f00d")
    report = comparison_report([compare(*jobs)])
    opening = report.opening
    assert opening is not None
    assert (opening.heading, opening.kind) == ("Cannot tell", "cannot_tell")
    assert opening.look_said == "No measure of this job says which rows stand out."
    (part, _) = report.sections
    assert part.scores is not None
    assert part.scores.rows[0][4:] == ("−1.00", "−33.3 %", "significant, worse")


def test_shares_of_rows_change_by_points() -> None:
    def share(value: float) -> dict[str, Any]:
        return row(value, unit=SHARE_OF_ROWS, sampling_error=0.01)

    jobs = [job(share(value), name=str(value)) for value in (0.163, 0.55, 0.0)]
    report = comparison_report([compare(each, jobs[-1]) for each in jobs[:-1]])
    scores = report.sections[-2].scores
    assert scores is not None
    assert scores.rows[0][4::2] == ("+16.3 points *", "+55 points *")


def test_a_comparison_of_many_lays_functions_over_each_other() -> None:
    jobs = [
        finished_job(later(full_results(), night, share), {}, f"jobs/{night}")
        for night, share in ((3, 0.7), (2, 0.98), (1, 1.0))
    ]
    report = comparison_report([compare(job, jobs[-1]) for job in jobs[:-1]])
    names = [f"nightly-0000000{night}" for night in (3, 2, 1)]
    for measure, key in (
        ("heat", "heat-trace"),
        ("magnitude", "magnitude-function"),
        ("vendi", "vendi-0"),
    ):
        (panel,) = figure(section(report, measure), key).panels
        assert [curve.name for curve in panel.curves if curve.name in names] == names
    scores = section(report, "vendi").scores
    assert scores is not None
    assert scores.header == ["score", "of", names[2], names[0], "change", names[1], "change"]
    (table,) = section(report, "method").tables
    assert [cells[0] for cells in table.rows] == names
    assert {cells[3:5] for cells in table.rows} == {("44.7 s", "488 MiB")}


@pytest.mark.parametrize("written_as", list(FORMATS))
def test_hostile_names_stay_text_in_every_format(written_as: str) -> None:
    text = FORMATS[written_as](job_report(read(full_results())))
    if written_as == "html":
        assert "<script>alert" not in text
        assert "<img" not in text.replace(r"\u003cimg", "")
    if written_as == "md":
        assert not re.search(r"(?<!\\)<", text), "every mark that could begin a tag is escaped"
    if written_as == "json":
        document = json.loads(text)
        assert document["schema"] == "latentscale.report/2"
        assert document["title"] == HOSTILE


def test_the_report_command(tmp_path: Path, latentscale: Callable[..., Ended]) -> None:
    first = write_job(tmp_path / "first", row(3.0), name="first")
    second = write_job(tmp_path / "second", row(2.0), name="second")
    compared = latentscale("report", second, first, "--format", "md")
    assert compared.code == 0, compared.err
    assert compared.out.startswith("# second against first")
    (first.parent / "corpora").mkdir(exist_ok=True)
    folders = (first.parent / "corpora", first, second)
    series = latentscale("report", *folders, "--series", "--format", "json")
    assert "1 folder without a finished job left out" in series.err
    assert json.loads(series.out)["kind"] == "series"
    page = tmp_path / "page.html"
    assert latentscale("report", second, first, "--output", page).code == 0
    assert page.read_text().startswith("<!doctype html>")
    figures = latentscale("report", second, first, "--figures", tmp_path / "svg", "--output", page)
    assert figures.err == f"figures: 0 in {tmp_path / 'svg'}\nreport: {page}\n"
    blocked = latentscale("report", second, first, "--figures", page / "below")
    why = "can't be made: Not a directory; name a folder that can be written"
    assert (blocked.code, blocked.err) == (2, f"latentscale: {page / 'below'}: {why}\n")
    unfinished = latentscale("report", tmp_path)
    assert unfinished.code == 2
    assert "no results.json here" in unfinished.err


def test_figures_are_files_on_white() -> None:
    found = figure_files(job_report(read(full_results())))
    assert {"heat-trace.svg", "vendi-0.svg", "vendi-0-rarefaction.svg", "vendi-labels.svg"} <= set(
        found
    )
    for text in found.values():
        root = ElementTree.fromstring(text)
        assert root.attrib["width"] == "640"
        assert root[0].attrib["fill"] == "white"
        assert "var(" not in text


def test_labels_that_begin_alike_have_names_of_their_own() -> None:
    alike = [f"{'long ' * 10}{end}" for end in ("one", "two")]
    counts = {**dict.fromkeys(alike, 60), "": 50, "cat": 40, "cat ": 30, "x" * 40: 20}
    scores = [
        Score.model_validate(row(1.0, measure="vendi", score="vendi", label=label))
        for label in counts
    ]
    names = [cells["label"] for cells in label_summary(scores, counts)]
    assert names == [*alike, "(none)", "cat", '"cat "', f"{'x' * 31}…"]


def test_a_baseline_that_is_compared_in_two_ways_shows_both() -> None:
    """A job of another size is compared on samples, and so with theirs of the baseline."""

    def one(value: float, rows: int, name: str) -> FinishedJob:
        mean = {"rows": 50, "mean": value / 2, "variance": 1.0, "share": 0.1, "freedom": 9}
        score = row(value, samples=[mean], sampling_error=0.1, measure="vendi", score="score")
        return job(score | {"kernel": "cosine", "order": "1"}, n=rows, name=name)

    jobs = [one(30.0, 200, "grown"), one(20.5, 100, "same"), one(20.0, 100, "release")]
    report = comparison_report([compare(each, jobs[-1]) for each in jobs[:-1]])
    [scores] = [part.scores for part in report.sections if part.scores is not None]
    [cells] = scores.rows
    assert cells[2] == "10.00 at 50 rows; 20.00 ± 0.1"
