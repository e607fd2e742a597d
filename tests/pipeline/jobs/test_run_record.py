"""What a run's events add up to, and how that is shown while it goes on."""

import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from latentscale_pipeline.cli import run_progress
from latentscale_pipeline.cli.run_progress import format_pace, format_rate, show_progress
from latentscale_pipeline.jobs.run_record import RunRecord
from latentscale_pipeline.storage.events import Event
from latentscale_pipeline.views.formatting import format_rough_duration
from tests.support.jobs import CONTROL

MIB = 2**20


def events(*told: tuple[str, float, dict[str, Any]]) -> RunRecord:
    return RunRecord.of(Event(name, time, fields) for name, time, fields in told)


def started(time: float = 100.0, **fields: Any) -> tuple[str, float, dict[str, Any]]:
    given = {"stage": "draw", "parts": 10, "found": 0, "reason": "computed", **fields}
    return "stage_started", time, given


def part(time: float, number: int, done: int, **fields: Any) -> tuple[str, float, dict[str, Any]]:
    given = {
        "stage": "draw", "part": number, "parts": 10, "done": done, "seconds": 4.0,
        "peak_memory_bytes": 300 * MIB, **fields,
    }  # fmt: skip
    return "part_done", time, given


def test_pace_is_counted_from_the_first_work_to_the_last() -> None:
    # Queued at 100, worked on from 106: four parts of 4 s by two workers.
    record = events(
        started(found=2),
        part(110.0, 2, 3),
        part(110.0, 3, 4, peak_memory_bytes=500 * MIB),
        part(114.0, 4, 5),
        part(114.0, 5, 6),
    )
    stage = record.stages["draw"]
    assert (stage.done, stage.parts) == (6, 10)
    assert stage.rate == 4 / 8
    assert stage.seconds_left(114.0) == pytest.approx(8.0)
    assert stage.seconds_left(117.0) == pytest.approx(5.0)
    assert stage.seconds_left(1000.0) == 0.0
    assert stage.peak_memory_bytes == 500 * MIB
    assert format_pace(stage, 114.0) == "30.0 parts/min, 8.0 s left, 500 MiB"


def test_nothing_is_known_before_the_first_part() -> None:
    stage = events(started()).stages["draw"]
    assert (stage.rate, stage.seconds_left(200.0), stage.peak_memory_bytes) == (None, None, None)
    assert format_pace(stage, 200.0) == ""


def estimated(seconds: float, **work: tuple[float, int]) -> tuple[str, float, dict[str, Any]]:
    stages = {
        name: {"work_seconds": seconds, "tasks": tasks} for name, (seconds, tasks) in work.items()
    }
    return "run_estimated", 100.0, {"seconds": seconds, "work": stages}


def test_the_pace_of_a_run_corrects_its_estimate() -> None:
    # Two workers: 60 + 20 s of work in 40 s.
    estimate = estimated(40.0, draw=(60.0, 10), sum=(20.0, 1))
    assert events(estimate).seconds_left(100.0) == pytest.approx(40.0)
    as_foreseen = [estimate, started(), *(part(105.0, i, i + 1) for i in range(5))]
    # 5 of 10 parts of three quarters of the work: 15 of 40 s foreseen.
    assert events(*as_foreseen).seconds_left(115.0) == pytest.approx(25.0)
    # Twice as slow: 30 s for 15 foreseen, and an estimate that counts as much as 4 s.
    assert events(*as_foreseen).seconds_left(130.0) == pytest.approx(25.0 * (30 + 4) / (15 + 4))


def test_a_stage_with_more_tasks_than_foreseen_is_never_taken_as_done() -> None:
    many = [part(105.0, i % 10, i % 10 + 1, round=i // 10) for i in range(40)]
    record = events(estimated(10.0, draw=(10.0, 10)), started(), *many)
    left = record.seconds_left(110.0)
    assert left is not None
    assert left > 0
    complete = events(
        estimated(10.0, draw=(10.0, 10)), started(), ("stage_done", 1.0, {"stage": "draw"})
    )
    assert complete.seconds_left(110.0) == 0.0


def test_a_run_without_an_estimate_and_one_that_ended_have_no_time_left() -> None:
    estimate = estimated(40.0, draw=(60.0, 10))
    ended = ("run_ended", 110.0, {"ending": "cancelled"})
    assert events(started()).seconds_left(110.0) is None
    assert events(estimate, ended).seconds_left(110.0) is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"seconds": 5, "work": [1]},
        {"seconds": float("inf"), "work": {"draw": {"work_seconds": 1, "tasks": 1}}},
        {"seconds": 5, "work": {"draw": {"work_seconds": float("nan"), "tasks": 1}, "x": 3}},
        {"seconds": -5, "work": {"draw": {"work_seconds": 1, "tasks": None}}},
    ],
)
def test_an_estimate_that_says_nothing_is_ignored(fields: dict[str, Any]) -> None:
    assert events(("run_estimated", 1.0, fields)).seconds_left(2.0) is None


def test_rounds_follow_each_other() -> None:
    iterations = [
        started(),
        part(110.0, -1, 10, round=0),
        *(part(120.0 + i, i, i + 1, round=1) for i in range(10)),
        part(131.0, -1, 10, round=1),
    ]
    stage = events(*iterations).stages["draw"]
    assert (stage.iteration, stage.done) == (2, 0), "the state of round 1 is there"
    assert stage.seconds_left(140.0) is None
    assert stage.rate == 10 / (131.0 - 106.0)
    stage = events(*iterations, part(140.0, 3, 1, round=2)).stages["draw"]
    assert (stage.iteration, stage.done) == (2, 1)
    assert len(stage.costs) == 13


def test_a_failure_is_forgotten_when_the_stage_starts_again() -> None:
    failure = ("stage_failed", 110.0, {"stage": "draw", "problem": "no"})
    record = events(started(), failure)
    assert (record.stages["draw"].failed, record.stages["draw"].problem) == (True, "no")
    assert not events(started(), failure, started(120.0)).stages["draw"].failed


def test_a_damaged_result_makes_its_stage_incomplete() -> None:
    damage = ("part_corrupt", 130.0, {"stage": "draw", "problem": "x"})
    done = ("stage_done", 120.0, {"stage": "draw"})
    assert events(started(), done).stages["draw"].complete
    assert not events(started(), done, damage).stages["draw"].complete


def test_how_a_run_ended() -> None:
    begin = ("run_started", 100.0, {"stages": 3})
    assert events(begin).ending == ""
    record = events(begin, ("run_ended", 160.0, {"ending": "cancelled", "error": "cancelled; x"}))
    assert (record.started, record.ended) == (100.0, 160.0)
    assert (record.ending, record.problem) == ("cancelled", "cancelled; x")


@pytest.mark.parametrize(
    ("rate", "written"),
    [(123.4, "123.4 parts/s"), (0.5, "30.0 parts/min"), (0.01, "36.0 parts/h")],
)
def test_rates_are_written_in_units_of_their_size(rate: float, written: str) -> None:
    assert format_rate(rate) == written


def tell_all(tell: Any) -> None:
    tell("run_started", job="toy-1", folder="/jobs/toy-1", stages=3)
    tell("waiting", line="waiting for process 3 on elsewhere, which runs this job")
    tell("dashboard_opened", link="http://127.0.0.1:1/status")
    tell("dashboard_missing", problem="the dashboard needs bokeh")
    tell("stage_found", stage="side", reason="already done")
    for name, _, fields in (started(found=2, reason="resumed: 2 of 10 parts were there"),):
        tell(name, **fields)
    for number in range(2, 10):
        tell("part_done", **part(0.0, number, number + 1)[2])
    tell("part_done", **part(0.0, -1, 10)[2])
    tell("stage_done", stage="draw")
    tell("stage_started", stage="halve", parts=10, found=0, reason="computed")
    for number in range(4):
        tell("part_done", **{**part(0.0, number, number + 1)[2], "stage": "halve", "round": 4})
    tell("part_retried", stage="halve", part=4, parts=10, problem="out of luck")


def lines_of(tmp_path: Path, *, quiet: bool = False, verbose: bool = False) -> list[str]:
    """Return what is said of a run where there is no terminal, without the times."""
    with (
        (tmp_path / "seen").open("w+") as seen,
        show_progress(
            Console(file=seen, force_terminal=False), quiet=quiet, verbose=verbose
        ) as tell,
    ):
        tell_all(tell)
    lines = (tmp_path / "seen").read_text().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)
    return [line[9:] for line in lines]


def test_every_stage_has_plain_lines_if_asked_for(tmp_path: Path) -> None:
    lines = [re.sub(r"\(.* parts", "(N parts", line) for line in lines_of(tmp_path, verbose=True)]
    assert [re.sub(r", [\d.]+ s left", "", line) for line in lines] == [
        "job toy-1 in /jobs/toy-1: 3 stages",
        "waiting for process 3 on elsewhere, which runs this job",
        "dashboard: http://127.0.0.1:1/status",
        "the dashboard needs bokeh",
        "side: already done",
        "draw: queued, tasks: 10; resumed: 2 of 10 parts were there",
        "draw: task 3 of 10 done (N parts/min, 300 MiB)",
        "draw: task 10 of 10 done (N parts/s, 300 MiB)",
        "draw: done, 36.0 s of work",
        "halve: queued, tasks: 10",
        "halve: iteration 4, task 1 of 10 done (N parts/min, 300 MiB)",
        "halve: out of luck",
    ]


def test_a_short_run_says_what_no_stage_says(tmp_path: Path) -> None:
    assert lines_of(tmp_path) == [
        "job toy-1 in /jobs/toy-1: 3 stages",
        "waiting for process 3 on elsewhere, which runs this job",
        "dashboard: http://127.0.0.1:1/status",
        "the dashboard needs bokeh",
        "halve: out of luck",
    ]


def test_a_long_run_says_from_time_to_time_what_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_SUMMARIES", 0.0)
    lines = lines_of(tmp_path)
    assert re.fullmatch(
        r"1 of 3 stages done, running: draw \(task 10 of 10, .* 300 MiB\)", lines[-9]
    )
    assert re.fullmatch(
        r"2 of 3 stages done, running: halve \(iteration 4, task 4 of 10, .* 300 MiB\)", lines[-1]
    )


def test_of_many_stages_those_with_tasks_under_way_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_SUMMARIES", 0.0)
    with (
        (tmp_path / "plain").open("w") as seen,
        show_progress(Console(file=seen, force_terminal=False)) as tell,
    ):
        tell("run_started", job="toy-1", folder="/jobs/toy-1", stages=6)
        for name in "abcde":
            tell("stage_started", stage=name, parts=10, found=0, reason="computed")
        tell("part_done", **{**part(0.0, 0, 1)[2], "stage": "d"})
    line = (tmp_path / "plain").read_text().splitlines()[-1]
    assert re.fullmatch(
        r".* 0 of 6 stages done, running: d \(task 1 of 10, .*\); "
        r"a \(task 0 of 10\); b \(task 0 of 10\); 2 more",
        line,
    )


def test_quiet_tells_trouble_only(tmp_path: Path) -> None:
    assert lines_of(tmp_path, quiet=True) == ["the dashboard needs bokeh", "halve: out of luck"]


def test_a_run_says_how_long_it_will_take_and_how_much_of_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_progress, "SECONDS_BETWEEN_SUMMARIES", 0.0)
    work = {
        "draw": {"work_seconds": 900.0, "tasks": 10},
        "halve": {"work_seconds": 900.0, "tasks": 1},
    }

    def tell_estimate(tell: Any) -> None:
        tell("run_started", job="toy-1", folder="/jobs/toy-1", stages=2)
        tell("run_estimated", seconds=900.0, work=work)
        tell("stage_found", stage="draw", reason="done elsewhere")

    with (
        (tmp_path / "plain").open("w") as seen,
        show_progress(Console(file=seen, force_terminal=False)) as tell,
    ):
        tell_estimate(tell)
    lines = (tmp_path / "plain").read_text().splitlines()
    assert lines[2].endswith(" this will take about 15 min")
    # Half of the work took no time, which counts against a tenth of the estimate.
    assert lines[-1].endswith(" 1 of 2 stages done, about 80 s left")
    with (
        (tmp_path / "bars").open("w") as seen,
        show_progress(Console(file=seen, force_terminal=True, width=120)) as tell,
    ):
        tell_estimate(tell)
    assert "stages; about 80 s left" in CONTROL.sub("", (tmp_path / "bars").read_text())


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.0, "about 10 s"), (34.0, "about 30 s"), (89.0, "about 90 s"), (91.0, "about 2 min"),
     (5300.0, "about 88 min"), (5500.0, "about 1.5 h"), (40_000.0, "about 11 h")],
)  # fmt: skip
def test_estimates_have_one_or_two_digits(seconds: float, written: str) -> None:
    assert format_rough_duration(seconds) == written


@pytest.mark.parametrize("width", [80, 140])
def test_bars_show_pace_time_and_memory(width: int, tmp_path: Any) -> None:
    with (
        (tmp_path / "seen").open("w+") as seen,
        show_progress(Console(file=seen, force_terminal=True, width=width), verbose=True) as tell,
    ):
        tell_all(tell)
    text = CONTROL.sub("", (tmp_path / "seen").read_text())
    assert "job toy-1 in /jobs/toy-1" in text
    assert "dashboard: http://127.0.0.1:1/status" in text
    last = {line.split()[0]: line for line in text.splitlines()[-5:] if line.strip()}
    assert re.search(r"━ +2/3 +0:00:\d\d stages", last["job"])
    assert re.search(r"━ 10/10 0:00:\d\d 300 MiB; resumed: 2 of", last["draw"])
    assert re.search(r"━ +4/10 0:00:\d\d iteration 4; [\d.]+ parts/(s|min), 300 MiB", last["halve"])
    assert all(len(line) <= width for line in text.splitlines() if "━" in line)


def test_bars_of_finished_stages_vanish(tmp_path: Path) -> None:
    with (
        (tmp_path / "seen").open("w+") as seen,
        show_progress(Console(file=seen, force_terminal=True, width=140)) as tell,
    ):
        tell_all(tell)
    text = (tmp_path / "seen").read_text()
    assert "halve" in text
    frames = CONTROL.sub("", text).splitlines()
    after = frames[-3:]
    assert not any(line.startswith("draw") for line in after), after
    assert text.endswith(("\x1b[2K", "\x1b[?25h")), "the last frame is cleared"
