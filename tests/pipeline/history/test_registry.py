"""A registry of finished jobs: many writers, one Parquet file each, tags, baselines, trends."""

import io
import json
import math
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset
import pytest
from scipy import stats

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.history.entries import (
    ADDED,
    JOB_COLUMNS,
    Entry,
    dump_entry,
    last_evaluations,
    last_used,
    load_entry,
    make_entry,
)
from latentscale_pipeline.history.opening import LIMITS
from latentscale_pipeline.history.registry import Registry, pick_baseline
from latentscale_pipeline.history.report import series_report
from latentscale_pipeline.measures.finished_job import read_job
from latentscale_pipeline.report.html import format_html
from latentscale_pipeline.results.model import Verdict
from tests.conftest import Ended
from tests.support.comparisons import results, row, write_job
from tests.support.nights import night, register_nights
from tests.support.results_documents import finished_job

Command = Callable[..., Ended]


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry.at(str(tmp_path / "history"))


def test_an_entry_comes_back_as_it_was(registry: Registry) -> None:
    entry = night(1, passed=False, failures="a\nb", workflow="w", evaluation="e" * 16, baseline="j")
    assert registry.add(entry)
    assert registry.entries() == [entry]


def test_adding_again_changes_nothing(registry: Registry) -> None:
    assert registry.add(night(1, 3.0))
    assert not registry.add(night(1, 4.0))
    (kept,) = registry.entries()
    assert kept.scores[0].value == 3.0


def test_a_job_of_a_workflow_is_there_once(registry: Registry) -> None:
    evaluated = {"workflow": "nightly", "evaluation": "0123456789abcdef"}
    assert registry.add(night(1, passed=False, **evaluated))
    assert not registry.add(night(1)), "added by hand, too"
    assert registry.add(night(2))
    assert registry.add(night(2, passed=True, **evaluated)), "added by hand before"
    found = [(entry.job[-1], entry.passed) for entry in registry.entries()]
    assert found == [("1", False), ("2", True)]


def test_a_job_that_was_moved_is_found_at_its_new_place(registry: Registry) -> None:
    assert registry.add(night(1))
    registry.tag("release", "nightly-00000001")
    assert not registry.move("nightly-00000001", "jobs/nightly-00000001")
    for place in ("/elsewhere/a", "s3://bucket/a"):
        assert registry.move("nightly-00000001", place)
        found = pick_baseline(registry, "release")
        assert found is not None
        assert found.url == place
    evaluated = night(1, workflow="w", evaluation="e" * 16, passed=True)
    assert registry.add(evaluated), "by a workflow, at the first place again"
    assert [entry.url for entry in registry.entries()] == ["jobs/nightly-00000001"]


def test_other_tools_query_it_without_us(registry: Registry, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        registry.add(night(number, 10.0 * number))
    table = pyarrow.dataset.dataset(tmp_path / "history/entries", format="parquet").to_table()
    found = table.sort_by("finished").to_pydict()
    assert found["value"] == [10.0, 20.0, 30.0]
    assert found["lower"] == [9.5, 19.5, 29.5]
    assert found["sampling_error"] == [0.25] * 3
    assert found["job"] == [f"nightly-{number:08d}" for number in (1, 2, 3)]


def test_several_writers_lose_nothing(registry: Registry) -> None:
    context = multiprocessing.get_context("spawn")
    firsts = (1, 5)
    writers = [
        context.Process(target=register_nights, args=(registry.store.url, n)) for n in firsts
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [entry.job for entry in registry.entries()] == [
        f"nightly-{number:08d}" for number in range(1, 11)
    ]
    # Two that move the tag to the same job at once may share a move; no other move is lost.
    moves = [json.loads(registry.store.read(key)) for key in registry.store.keys("tags")]
    assert set(moves) == {entry.job for entry in registry.entries()}
    assert registry.tags()["newest"] == moves[-1]


def test_several_writers_lose_nothing_on_an_object_store(s3_url: str) -> None:
    with ThreadPoolExecutor(4) as writers:
        list(writers.map(lambda first: register_nights(s3_url, first, 2), (1, 2, 3, 4)))
    registry = Registry.at(s3_url)
    assert [entry.job for entry in registry.entries()] == [
        f"nightly-{number:08d}" for number in range(1, 6)
    ]
    assert registry.tags()["newest"] in {entry.job for entry in registry.entries()}
    with ThreadPoolExecutor(4) as writers:
        added = list(writers.map(lambda value: registry.add(night(20, value)), (1.0, 2.0, 3.0)))
    assert sorted(added) == [False, False, True], "of several, one is the first"
    (kept,) = [entry for entry in registry.entries() if entry.job == "nightly-00000020"]
    assert kept.scores[0].value == 1.0 + added.index(True)


def test_on_an_object_store_as_on_a_disk(s3_url: str) -> None:
    registry = Registry.at(s3_url)
    assert registry.add(night(1))
    assert not registry.add(night(1, 4.0))
    registry.tag("release", "nightly-00000001")
    assert pick_baseline(registry, "release") == registry.entries()[0]


def test_latest_is_the_newest_that_didnt_fail(registry: Registry) -> None:
    assert pick_baseline(registry, "latest") is None
    for number, passed in ((2, None), (1, True), (3, False)):
        registry.add(night(number, passed=passed))
    found = pick_baseline(registry, "latest")
    assert found is not None
    assert found.job == "nightly-00000002"
    assert pick_baseline(registry, "latest", "another name") is None


def test_the_last_evaluation_of_a_job_by_this_workflow_counts(registry: Registry) -> None:
    def evaluated(number: int, workflow: str, at: int, *, passed: bool) -> None:
        known = {"workflow": workflow, "evaluation": f"{workflow}{at}", "passed": passed}
        time = f"2026-03-{at:02d}T00:00:00+00:00"
        registry.add(replace(night(number, **known), registered=time))

    def picked() -> tuple[str, int]:
        entry = pick_baseline(registry, "latest", "nightly")
        assert entry is not None
        new = finished_job(results([row(9.0)]), None, "jobs/nightly-00000010")
        return entry.job, len(registry.earlier("nightly", new, today=True))

    evaluated(1, "nightly", 1, passed=True)
    evaluated(2, "nightly", 2, passed=True)
    evaluated(2, "strict", 3, passed=False)
    assert picked() == ("nightly-00000002", 2), "another workflow has gates of its own"
    evaluated(2, "nightly", 4, passed=False)
    assert picked() == ("nightly-00000001", 1)
    # What was evaluated last is the latest, although the job was computed first.
    evaluated(3, "nightly", 5, passed=True)
    evaluated(1, "nightly", 6, passed=True)
    assert picked() == ("nightly-00000001", 2)
    document = results([row(9.0)])
    document["job"] |= {"id": "nightly-00000001", "finished": "2026-01-01T02:00:00Z"}
    again = finished_job(document, None, "jobs/nightly-00000001")
    assert len(registry.earlier("nightly", again)) == 0
    assert len(registry.earlier("nightly", again, today=True)) == 1


def test_rows_that_came_back_are_the_last_of_the_series(registry: Registry) -> None:
    for at, (number, passed) in enumerate(((1, True), (2, True), (3, True), (1, False)), 1):
        known = {"workflow": "nightly", "evaluation": f"e{at}", "passed": passed}
        time = f"2026-03-{at:02d}T00:00:00+00:00"
        registry.add(replace(night(number, failures="too low", **known), registered=time))
    entries = last_evaluations(registry.entries("nightly"), "nightly")
    assert [entry.job[-1] for entry in entries] == ["2", "3", "1"]
    opening = series_report(entries, "nightly").opening
    assert opening is not None
    assert opening.sentences[-1] == ("1 of 3 jobs failed its gates. The last one failed: too low.")
    days = ["2026-03-02", "2026-03-03", "2026-03-04"]
    assert [mark.text[:10] for mark in opening.marks] == days
    assert [last_used(entry) for entry in entries] == [f"{day}T00:00:00Z" for day in days]


def test_of_jobs_that_finished_in_one_second_those_before_are_earlier(registry: Registry) -> None:
    second = "2026-01-01T01:00:00Z"
    for number in (1, 2, 3):
        time = f"2026-01-01T02:00:0{number}Z"
        registry.add(replace(night(number), finished=second, registered=time))
    counts = []
    for number in (1, 2, 3, 4):
        document = results([row(9.0)])
        document["job"] |= {"id": f"nightly-{number:08d}", "finished": second}
        asking = finished_job(document, None, f"jobs/nightly-{number:08d}")
        counts.append(len(registry.earlier("nightly", asking)))
    assert counts == [0, 1, 2, 3]


def test_an_accepted_job_is_a_baseline_and_limits_begin_anew(
    registry: Registry, tmp_path: Path, latentscale: Command
) -> None:
    for number in range(1, 7):
        registry.add(night(number, 5.0 + 0.1 * number, passed=True))
    for number in (7, 8, 9):
        registry.add(night(number, 9.0, passed=False, failures="too high"))
    job = "nightly-00000008"

    def earlier() -> list[float | None]:
        last = finished_job(results([row(9.0)]), None, "jobs/nightly-00000010")
        return [each.scores[0].value for each in registry.earlier("nightly", last)]

    assert pick_baseline(registry, "latest") == registry.entries()[5]
    assert earlier() == [5.0 + 0.1 * number for number in range(1, 7)]
    ended = latentscale(
        *("history", "accept", tmp_path / "history", f"jobs/{job}/", "--reason", "more topics")
    )
    assert ended.out == f"{job}: accepted; limits of drift begin anew with it\n"
    picked = pick_baseline(registry, "latest")
    assert picked is not None
    assert (picked.job, picked.passed, picked.accepted) == (job, False, "more topics")
    # Neither what was usual before the change nor the job that failed after it counts.
    assert earlier() == [9.0]
    listed = latentscale("history", "list", tmp_path / "history").out
    assert "failed, accepted: more topics" in listed
    opening = series_report(registry.entries()[:8], "nightly").opening
    assert opening is not None
    assert opening.sentences[-1] == (
        "1 of 8 jobs failed its gates. The last one failed and was accepted."
    )
    history = tmp_path / "history"
    latentscale("history", "accept", history, job, "--reason", "more kinds")
    assert "failed, accepted: more kinds" in latentscale("history", "list", history).out
    assert latentscale("history", "accept", history, job, "--undo").out == (
        f"{job}: no longer accepted\n"
    )
    assert pick_baseline(registry, "latest") == registry.entries()[5]
    assert len(earlier()) == 6
    passed = latentscale("history", "accept", history, "nightly-00000002").out
    assert "accepted, though no gate of it had failed; limits of drift begin anew" in passed
    assert passed.endswith(
        "nightly-00000006 was evaluated after it and stays the latest baseline\n"
    )
    unknown = latentscale("history", "accept", history, "nightly-1000000")
    assert unknown.code == 2
    assert "no job nightly-1000000 here; did you mean nightly-0000000" in unknown.err
    assert latentscale("history", "accept", history, job, "--undo", "--reason", "a").code == 2


def test_limits_begin_anew_with_accepted_rows_that_came_back(registry: Registry) -> None:
    for number in range(1, 10):
        registry.add(night(number, 5.0 + 0.01 * number, passed=True, evaluation=f"of {number}"))
    registry.add(night(3, 5.03, passed=False, evaluation="again"))
    registry.accept("nightly-00000003")
    last = finished_job(results([row(9.0)]), None, "jobs/nightly-00000020")
    found = registry.earlier("nightly", last, today=True)
    assert [each.scores[0].value for each in found] == [5.03]
    picked = pick_baseline(registry, "latest")
    assert picked is not None
    assert picked.job == "nightly-00000003"


def test_series_of_other_names_set_no_limits_on_one_page() -> None:
    usual = (5.0, 5.2, 4.9, 5.1, 5.0, 5.3)
    nightly = [night(n, v) for n, v in enumerate((*usual, 8.0), 1)]
    other = [replace(night(n, 50.0 + n % 3), name="other") for n in range(1, 8)]
    both = [entry for pair in zip(other, nightly, strict=True) for entry in pair]
    for entries in (nightly, both):
        opening = series_report(entries, "nightly").opening
        assert opening is not None
        assert opening.heading == "Outside the control limits"


def test_a_rejected_job_is_no_baseline_and_sets_no_limits(
    registry: Registry, tmp_path: Path, latentscale: Command
) -> None:
    for number in range(1, 7):
        registry.add(night(number, 5.0 + 0.1 * number, passed=None))
    history, job = tmp_path / "history", "nightly-00000006"
    last = finished_job(results([row(9.0)]), None, "jobs/nightly-00000010")
    ended = latentscale("history", "reject", history, f"jobs/{job}/", "--reason", "a bad export")
    assert ended.out == f"{job}: rejected; it is no baseline and sets no limits\n"
    assert pick_baseline(registry, "latest") == registry.entries()[4]
    assert len(registry.earlier("nightly", last)) == 5
    assert "rejected: a bad export" in latentscale("history", "list", history).out
    opening = series_report(registry.entries(), "nightly").opening
    assert opening is not None
    assert opening.marks[-1].text.endswith(f"{job}: rejected")
    [described] = [
        entry
        for entry in json.loads(latentscale("history", "list", history, "--json").out)
        if entry["job"] == job
    ]
    assert (described["rejected"], described["accepted"]) == ("a bad export", None)
    # Accepting it takes that back, and the other way round.
    latentscale("history", "accept", history, job)
    assert len(registry.earlier("nightly", last)) == 1
    latentscale("history", "reject", history, job)
    assert len(registry.earlier("nightly", last)) == 5
    ended = latentscale("history", "reject", history, job, "--undo")
    assert ended.out == f"{job}: no longer rejected\n"
    assert len(registry.earlier("nightly", last)) == 6
    assert latentscale("history", "reject", history, "nightly-1000000").code == 2
    assert latentscale("history", "reject", history, job, "--undo", "--reason", "a").code == 2


def test_a_tag_moves(registry: Registry) -> None:
    registry.add(night(1))
    registry.add(night(2))
    registry.tag("release", "nightly-00000001")
    registry.tag("release", "nightly-00000002")
    assert registry.tags() == {"release": "nightly-00000002"}
    assert len(registry.store.keys("tags")) == 2, "nothing is overwritten"
    for tag in ("latest", "Release", "../up", ""):
        with pytest.raises(BadInput, match="can't be a tag"):
            registry.tag(tag, "nightly-00000001")
    with pytest.raises(BadInput, match="no job other here; add it with latentscale history add"):
        registry.tag("good", "other")


def test_a_damaged_entry_is_named(registry: Registry, tmp_path: Path) -> None:
    registry.add(night(1))
    (path,) = (tmp_path / "history/entries").iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match=r"nightly-00000001\.parquet: not an entry of a history"):
        registry.entries()


def test_the_commands(tmp_path: Path, latentscale: Command) -> None:
    history = tmp_path / "history"
    for name in ("first", "second"):
        folder = write_job(tmp_path / name, row(3.0), name=name)
        added = latentscale("history", "add", history, folder, "--tag", "release")
        assert added.out == f"{name}-1a2b3c4d: added\n{name}-1a2b3c4d: tagged release\n"
    again = latentscale("history", "add", history, tmp_path / "first")
    assert again.out == "first-1a2b3c4d: was there already\n"
    failed = latentscale("history", "add", history, tmp_path / "first", "--failed")
    assert failed.code == 2
    assert f"latentscale history reject {history} first-1a2b3c4d --reason WHY" in failed.err
    rejected = latentscale("history", "reject", history, "first-1a2b3c4d", "--reason", "a test")
    assert rejected.code == 0
    assert latentscale("history", "add", history, tmp_path / "first", "--failed").code == 0
    assert latentscale("history", "reject", history, "first-1a2b3c4d", "--undo").code == 0
    inside = latentscale("history", "add", tmp_path / "first", tmp_path / "second")
    assert inside.code == 2
    assert "this is a job, not a history; name the folder of the history first" in inside.err
    assert not (tmp_path / "first" / "entries").exists()
    listed = json.loads(latentscale("history", "list", history, "--json").out)
    assert {entry["job"]: entry["tags"] for entry in listed} == {
        "first-1a2b3c4d": [],
        "second-1a2b3c4d": ["release"],
    }
    picked = latentscale("history", "pick", history, "--baseline", "release").out.strip()
    assert read_job(picked).name == "second"
    nothing = latentscale("history", "pick", tmp_path / "empty")
    assert nothing.code == 2
    assert "no job can be the baseline" in nothing.err
    page = tmp_path / "trends.md"
    plotted = latentscale("history", "plot", history, "--format", "md", "--output", page)
    assert plotted.code == 0
    assert "toy" in page.read_text()


def test_a_trend_has_every_job_and_marks_the_failed() -> None:
    entries = [night(1, 3.0, passed=True), night(2, 3.5), night(3, 2.0, passed=False)]
    report = series_report(entries, "nightly", {"release": "nightly-00000002"})
    section = report.sections[2]
    (figure,) = section.figures
    (panel,) = figure.panels
    line, passed, failed = panel.curves
    nights = [datetime(2026, 1, day, 2, tzinfo=UTC).timestamp() for day in (1, 2, 3)]
    assert (line.x, line.y) == (nights, [3.0, 3.5, 2.0])
    assert (passed.x, passed.lower, passed.upper) == (nights[:2], [2.5, 3.0], [3.5, 4.0])
    assert (failed.x, failed.y) == (nights[2:], [2.0])
    assert failed.texts == ["nightly-00000003, gates failed"]
    assert failed.style is not None
    assert failed.style.symbol == "cross"
    assert section.scores is not None
    ((name, last, change, lowest, highest, jobs, unit),) = section.scores.rows
    assert (name, change, lowest, highest) == ("spread, corpus", "−43 %", "2", "3.5")
    assert (last, jobs, unit) == ("2.0 [1.5, 2.5]", "3", "paws")
    assert report.opening is not None
    assert report.opening.heading == "Not compared; a gate failed"
    assert report.opening.sentences[-1].startswith("1 of 3 jobs failed its gates. The last one fai")
    assert [mark.kind for mark in report.opening.marks] == [
        *("not_compared", "not_compared", "failed"),
    ]
    (jobs_table,) = report.sections[1].tables
    assert jobs_table.anchors == ["job-2", "job-1", "job-0"]
    place = jobs_table.header.index("gates")
    assert [cells[place] for cells in jobs_table.rows] == ["failed", "", "passed"]
    assert [cells[place + 1] for cells in jobs_table.rows] == ["", "release", ""]
    (costs,) = report.sections[-1].tables
    newest = dict(zip(costs.header, costs.rows[0], strict=True))
    assert (newest["time"], newest["peak memory"]) == ("1 min 30 s", "1.5 GiB")


def test_a_kernel_whose_bandwidth_is_not_told_has_a_series_of_its_own() -> None:
    entries = []
    for number, kernel in ((1, "rbf"), (2, "rbf median")):
        document = results([row(float(number), 0.5, kernel=kernel)])
        document["job"] |= {"id": f"nightly-{number:08d}", "finished": f"2026-01-0{number}T02:00Z"}
        entries.append(make_entry(finished_job(document, None, f"jobs/{number}")))
    table = series_report(entries, "nightly").sections[2].scores
    assert table is not None
    assert [(cells[0], cells[5]) for cells in table.rows] == [
        ("spread (rbf), corpus", "1"),
        ("spread (rbf median), corpus", "1"),
    ]


def verdict_of(value: str, reason: str) -> Verdict:
    return Verdict(value=value, reason=reason, compared=1)


def compared_night(number: int, mean: float, verdict: str) -> Entry:
    """Return a night whose score is compared with a baseline on samples of 100 rows."""
    known: dict[str, Any] = {"rows": 100, "mean": mean, "variance": 1.0, "share": 0.1, "freedom": 9}
    usual = {"rows": 100, "found": mean, "centre": 5.0, "lower": 4.0, "upper": 6.0, "z": mean - 5}
    usual |= {"p": 0.001, "p_adjusted": 0.001 if verdict == "differs" else 1.0, "smallest_found": 1}
    document = results([row(mean + 20, 0.5, samples=[known], expected=usual)])
    document["job"] |= {"id": f"nightly-{number:08d}", "finished": f"2026-01-0{number}T02:00Z"}
    reason = f"spread is {mean:g}, where 4 to 6 is expected"
    return make_entry(
        finished_job(document, None, f"jobs/{number}"),
        baseline="s3://key@bucket/jobs/release-1a2b3c4d/",
        verdict=verdict_of(verdict, reason),
    )


def test_a_series_opens_with_the_last_verdict_and_since_when() -> None:
    values = {1: "no_difference_found", 2: "no_difference_found", 3: "differs", 4: "differs"}
    entries = [
        compared_night(number, 9.0 if value == "differs" else 5.0, value)
        for number, value in values.items()
    ]
    stored = [load_entry(dump_entry(entry), "here") for entry in entries]
    assert stored == entries
    report = series_report(stored, "nightly")
    opening = report.opening
    assert opening is not None
    assert (opening.kind, opening.heading) == ("differs", "Differs from release-1a2b3c4d")
    assert opening.sentences == [
        "Since 2026-01-03: the last 2 of 4 jobs.",
        "spread is 9, where 4 to 6 is expected",
    ]
    assert [mark.kind for mark in opening.marks] == list(values.values())
    (figure,) = report.sections[0].figures
    assert figure.caption == "on samples of 100 rows"
    (panel,) = figure.panels
    chance, line, usual, outside = panel.curves
    assert (chance.lower, chance.upper) == ([4.0] * 4, [6.0] * 4)
    assert line.y == [5.0, 5.0, 9.0, 9.0]
    assert (usual.y, outside.y) == ([5.0, 5.0], [9.0, 9.0])
    page = format_html(report)
    assert page.count("<li class=") == 4
    assert 'href="#job-3"' in page
    assert 'id="job-3"' in page


def test_a_headline_shows_the_limits_of_the_nights_before() -> None:
    values = [5.0, 5.2, 4.9, 5.1, 5.0, 5.3, 9.0]
    entries = [
        compared_night(number, value, "no_difference_found")
        for number, value in enumerate(values, 1)
    ]
    (figure,) = series_report(entries, "nightly").sections[0].figures
    lower, upper = (curve for curve in figure.panels[0].curves if curve.style == LIMITS)
    assert len(lower.x) == 2, "the sixth night and the seventh have five before them"
    for place, number in enumerate((5, 6)):
        before = np.array(values[:number])
        reach = stats.t.ppf(1 - stats.norm.sf(3.0), number - 1) * before.std(ddof=1)
        reach *= math.sqrt(1 + 1 / number)
        ends = (lower.y[place], upper.y[place])
        assert ends == pytest.approx((before.mean() - reach, before.mean() + reach))
    assert upper.y[1] < values[-1]


def test_a_series_without_verdicts_opens_with_the_control_limits() -> None:
    def opening(*values: float) -> Any:
        return series_report([night(n, v) for n, v in enumerate(values, 1)], "nightly").opening

    usual = (5.0, 5.2, 4.9, 5.1, 5.0, 5.3)
    few = opening(*usual[:5])
    assert (few.kind, few.heading) == ("not_compared", "Not compared")
    within = opening(*usual, 5.1)
    assert (within.kind, within.heading) == ("no_difference_found", "Within the control limits")
    outside = opening(*usual, 9.0)
    assert (outside.kind, outside.heading) == ("differs", "Outside the control limits")
    assert outside.sentences[0] == "In the last job these lie outside: toy: spread."
    # Jobs that aren't shown set limits as well.
    entries = [night(n, v) for n, v in enumerate((*usual, 9.0), 1)]
    few = series_report(entries, "nightly", shown=2)
    assert few.opening is not None
    assert few.opening.heading == outside.heading
    assert len(few.opening.marks) == 2
    (figure,) = few.sections[0].figures
    limits = [curve.y[-1] for curve in figure.panels[0].curves if curve.style == LIMITS]
    (figure,) = series_report(entries, "nightly").sections[0].figures
    assert limits == [curve.y[-1] for curve in figure.panels[0].curves if curve.style == LIMITS]


def test_a_job_whose_gates_failed_sets_no_limits(tmp_path: Path, latentscale: Command) -> None:
    for number in (1, 2):
        write_job(tmp_path / f"job-{number}", row(3.0), name=f"night-{number}")
    history = tmp_path / "history"
    assert latentscale("history", "add", history, tmp_path / "job-1").code == 0
    assert latentscale("history", "add", history, tmp_path / "job-2", "--failed").code == 0
    registry = Registry.existing(str(history))
    assert sorted(entry.passed is False for entry in registry.entries()) == [False, True]
    [job] = [entry for entry in registry.entries() if entry.passed is None]
    picked = pick_baseline(registry, "latest")
    assert picked is not None
    assert picked.job == job.job
    page = tmp_path / "trends.html"
    assert latentscale("history", "plot", history, "--output", page).code == 0
    assert "1 of 2 jobs failed its gates. The last one failed.</p>" in page.read_text()


def test_an_entry_of_an_earlier_version_has_no_verdict() -> None:
    import pyarrow
    from pyarrow import parquet

    entry = night(1, 3.0, passed=True)
    table = parquet.read_table(io.BytesIO(dump_entry(entry)))
    added = ("verdict", "samples_", "seconds", "peak_", "corpus_dim", "reference_dim")
    left = [name for name in table.column_names if not name.startswith(added)]
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table({name: table[name] for name in left}), stream)
    costs = {"seconds": None, "peak_memory_bytes": None}
    assert load_entry(stream.getvalue(), "here") == replace(entry, **costs)
    # What is said of an entry later isn't in it, and what a version adds has a stand-in.
    first = "job name url finished registered version corpus_fingerprint reference_fingerprint "
    first += "corpus_rows workflow evaluation baseline passed failures"
    assert set(JOB_COLUMNS) == {*first.split(), *ADDED}
