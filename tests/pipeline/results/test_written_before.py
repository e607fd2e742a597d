"""Results that an earlier version wrote are compared, reported and registered as ever."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latentscale_pipeline.measures.finished_job import read_job, read_results
from latentscale_pipeline.results.part import Part
from tests import DATA
from tests.conftest import Ended
from tests.support.results_documents import check_results

Command = Callable[..., Ended]

WRITTEN_BEFORE = DATA / "written_before"

AREA = ("magnitude", "corpus", "area", None, None, None)
COSINE = ("vendi", "corpus", "vendi", "cosine", "1", None)
GROUP = ("vendi", "corpus", "vendi", "cosine", "1", "group 2")
IMD = ("heat", "pair", "imd", None, None, None)
KID = ("baselines", "pair", "KID", None, None, None)

JOBS: dict[str, dict[str, Any]] = {
    "compare": {
        "id": "compare-9fa687e1",
        "rows": (300, 320),
        "count": 34,
        "scores": {
            AREA: (1077.971385837921, 1077.9713857606212, 1077.971385915221, None),
            COSINE: (5.557186409883039, 5.557186409883039, 5.557186409883039, None),
            IMD: (7.852554936861372e-06, 7.852554935211356e-06, 7.852554938511387e-06, None),
        },
        "reported": "| Heat trace (scale 1.166) | corpus | 0.345559 | ± 5 × 10⁻¹⁴ | exact |",
    },
    "labels": {
        "id": "labels-07635da5",
        "rows": (400, 300),
        "count": 86,
        "scores": {
            COSINE: (3.9197907087820294, 3.9197907087820294, 3.9197907087820294, None),
            GROUP: (1.4386949773735276, 1.4386949773735276, 1.4386949773735276, None),
            KID: (*[3.1877460800713946] * 3, 0.19293660544091198),
        },
        "reported": "| Heat trace (scale 0.8111) | corpus | 0.464880 | ± 6 × 10⁻¹⁴ | exact |",
    },
    "replicates": {
        "id": "replicates-a9c5705a",
        "rows": (400, 420),
        "count": 34,
        "scores": {
            COSINE: (4.848354161301934, 4.848354161301934, 4.848354161301934, None),
            IMD: (
                *(3.464231532051406e-06, 3.464231529997309e-06, 3.4642315341055027e-06),
                3.3957119558529106e-05,
            ),
        },
        "reported": "| Heat trace (scale 0.8111) | corpus | 0.465638 | ± 6 × 10⁻¹⁴ | exact |",
    },
}

every_job = pytest.mark.parametrize("name", JOBS)


def key(row: dict[str, Any]) -> tuple[str | None, ...]:
    """What tells a score of these jobs apart."""
    return tuple(row.get(name) for name in ("measure", "of", "score", "kernel", "order", "label"))


@every_job
def test_it_is_read(name: str) -> None:
    job = read_job(str(WRITTEN_BEFORE / name))
    known = JOBS[name]
    assert (job.id, job.name, job.version) == (known["id"], name, "0.1.0")
    assert (job.corpora["corpus"].n, job.corpora["reference"].n) == known["rows"]
    assert len(job.scores) == known["count"]
    found = {key(score.document()): score for score in job.scores}
    for which, numbers in known["scores"].items():
        score = found[which]
        assert (score.value, score.lower, score.upper, score.sampling_error) == numbers


@every_job
def test_it_is_written_again_to_the_byte(name: str) -> None:
    text = (WRITTEN_BEFORE / name / "results.json").read_bytes()
    document = json.loads(text)
    check_results(document)
    results = read_results(document, name)
    assert all(isinstance(part, Part) for part in results.measures.values())
    assert results.dump() == text


@every_job
def test_it_is_compared(name: str, latentscale: Command) -> None:
    baseline = "labels"
    job = WRITTEN_BEFORE / name
    ended = latentscale("compare", job, WRITTEN_BEFORE / baseline, "--allow-incomparable", "--json")
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    assert document["job"]["id"] == JOBS[name]["id"]
    assert bool(document["unlike"]) == (name != baseline)
    compared = {key(row): row for row in document["scores"]}
    ours, theirs = JOBS[name]["scores"][COSINE][0], JOBS[baseline]["scores"][COSINE][0]
    row = compared[COSINE]
    assert (row["job"]["value"], row["baseline"]["value"]) == (ours, theirs)
    assert row["difference"]["value"] == ours - theirs


@every_job
def test_it_is_reported(name: str, latentscale: Command) -> None:
    ended = latentscale("report", WRITTEN_BEFORE / name, "--format", "md")
    assert ended.code == 0, ended.err
    assert JOBS[name]["reported"] in ended.out


def test_they_are_registered(tmp_path: Path, latentscale: Command) -> None:
    registry = tmp_path / "history"
    ended = latentscale("history", "add", registry, *(WRITTEN_BEFORE / name for name in JOBS))
    assert ended.code == 0, ended.err
    entries = json.loads(latentscale("history", "list", registry, "--json").out)
    listed = {entry["name"]: entry for entry in entries}
    assert {name: entry["job"] for name, entry in listed.items()} == {
        name: known["id"] for name, known in JOBS.items()
    }
    for name, known in JOBS.items():
        assert listed[name]["rows"] == known["rows"][0]
        assert len(listed[name]["scores"]) == known["count"]
        scores = {key(row): row for row in listed[name]["scores"]}
        assert scores[COSINE]["value"] == known["scores"][COSINE][0]
        assert scores[COSINE]["size_dependent"]
    ended = latentscale("history", "plot", registry, "--output", tmp_path / "series.html")
    assert ended.code == 0, ended.err
    assert "3 jobs" in (tmp_path / "series.html").read_text("utf-8")
