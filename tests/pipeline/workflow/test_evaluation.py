"""A workflow: from ingest to gate, once for each corpus, with a verdict that people are told."""

import base64
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from latentscale_pipeline.history.registry import Registry
from tests.conftest import Ended
from tests.support.recipes import CLUSTERS, LATENTSCALE, RECIPES, corpus, wait_for

Command = Callable[..., Ended]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three nightly corpora, of which the third lost a third of its clusters."""
    for night, clusters in enumerate((CLUSTERS, CLUSTERS, 2 * CLUSTERS // 3), 1):
        corpus(tmp_path / f"night-{night}.npy", night, clusters)
    monkeypatch.chdir(tmp_path)
    write_workflow(tmp_path)
    return tmp_path


def write_workflow(place: Path, **changes: Any) -> None:
    recipe = yaml.safe_load((RECIPES / "nightly.yaml").read_text())
    recipe["job"]["cluster"] = {"kind": "serial"}
    recipe["job"]["measures"]["magnitude"] = {"scales": 6}
    recipe |= {"notify": [], **changes}
    (place / "nightly.yaml").write_text(yaml.safe_dump(recipe))


def night(latentscale: Command, number: int, *options: object) -> Ended:
    return latentscale(
        *("workflow", "run", "nightly.yaml", "--quiet", *options),
        *("-o", f"corpora.corpus=night-{number}.npy"),
    )


def results(place: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in place.glob("jobs/*/results.json")]
    return sorted(found, key=lambda document: document["job"]["finished"])


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, Any]], list[int]]]:
    """A server's address, what it was sent, and what it will answer (200 once that is empty)."""
    heard: list[dict[str, Any]] = []
    answers: list[int] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            heard[-1]["authorization"] = self.headers["Authorization"]
            self.send_response(answers.pop(0) if answers else 200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/services/very-secret?token=x", heard, answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_corpus_that_lost_a_third_of_its_clusters_fails_the_gate(
    place: Path,
    latentscale: Command,
    webhook: tuple[str, list[dict[str, Any]], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, heard, answers = webhook
    monkeypatch.setenv("NIGHTLY_WEBHOOK", address.replace("://", "://a%20user:p%2Fw@"))
    write_workflow(place, notify=[{"webhook_from": "NIGHTLY_WEBHOOK"}])
    first, second = night(latentscale, 1), night(latentscale, 2)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert f"none yet: this is the first in {place}/history\n" in first.out
    assert heard == [], "only failures are told"
    answers.append(400)
    third = night(latentscale, 3)
    assert third.code == 1, third.err
    cosine = [
        row["value"]
        for path in sorted(place.glob("jobs/nightly-*/results.json"))
        for row in json.loads(path.read_text())["scores"]
        if (row["measure"], row.get("kernel"), row.get("order")) == ("vendi", "cosine", "1")
    ]
    lost = 1 - min(cosine) / sorted(cosine)[1]
    assert 0.25 < lost < 0.4, "six of nine clusters are left"
    (said,) = [
        line for line in third.err.splitlines() if "vendi cosine, order 1 (corpus) fell" in line
    ]
    assert said.startswith("gate failed: vendi cosine, order 1 (corpus) fell by ")
    fell = float(said.partition("fell by ")[2].partition(" %")[0]) / 100
    assert 0.25 < fell < 0.4
    assert "max_drop allows 10 %" in said
    # The server refused: what wasn't heard is told by the next run, and the address by none.
    assert "the webhook at 127.0.0.1 wasn't told: it answered 400" in third.err
    assert "secret" not in third.err + third.out
    again = night(latentscale, 3)
    assert again.code == 1
    assert "was evaluated before" in again.err
    assert [message["passed"] for message in heard] == [False, False]
    basic = base64.b64encode(b"a user:p/w").decode()
    assert [message["authorization"] for message in heard] == [f"Basic {basic}"] * 2
    assert any(failure in said for failure in heard[-1]["failures"])
    assert night(latentscale, 3).code == 1
    assert len(heard) == 2, "told once"
    searched = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".npy"]
    assert not [path for path in searched if b"very-secret" in path.read_bytes()]


def test_drift_from_the_nights_before_fails(place: Path, latentscale: Command) -> None:
    gate = {"measure": "vendi", "kernel": "cosine", "order": 1, "drift": {"window": 6}}
    write_workflow(place, gates=[gate], baseline="none")
    assert night(latentscale, 1).code == 0
    registry = Registry.existing(str(place / "history"))
    [entry] = registry.entries()
    for before in range(6):
        scores = tuple(
            score.model_copy(update={"value": (score.value or 0.0) * (1 + 0.01 * (before % 3))})
            for score in entry.scores
        )
        known = {"job": f"nightly-{before}", "evaluation": f"{before}", "scores": scores}
        assert registry.add(replace(entry, finished=f"2026-01-0{before + 1}T00:00:00Z", **known))
    ended = night(latentscale, 2)
    assert ended.code == 0, ended.err
    ended = night(latentscale, 3)
    assert ended.code == 1
    assert "where the 6 jobs before put it between" in ended.err
    assert "vendi cosine, order 1 (corpus) is " in ended.err


def test_what_chance_does_not_explain_fails_without_a_reference(
    place: Path, latentscale: Command
) -> None:
    write_workflow(place, gates=[{"p_below": 0.01}])
    recipe = yaml.safe_load((place / "nightly.yaml").read_text())
    recipe["job"]["measures"] = {"duplicates": {}}
    (place / "nightly.yaml").write_text(yaml.safe_dump(recipe))
    rows = np.load(place / "night-3.npy")
    rows[: len(rows) // 5] = rows[0] * (1 + 1e-4 * np.arange(len(rows) // 5)[:, None])
    np.save(place / "night-3.npy", rows)
    first, second, third = (night(latentscale, number) for number in (1, 2, 3))
    assert (first.code, second.code, third.code) == (0, 0, 1), first.err + second.err + third.err
    [said] = [line for line in third.err.splitlines() if line.startswith("gate failed")]
    assert "exact duplicates (corpus) is 54, where 0 to 7 is expected at 270 rows" in said
    assert "p_below allows 0.01" in said
    jobs = sorted(str(path.parent) for path in place.glob("jobs/*/results.json"))
    [bad] = [job for job in jobs if Path(job).name in third.out.splitlines()[0]]
    [good] = [job for job in jobs if Path(job).name in first.out.splitlines()[0]]
    assert latentscale("compare", bad, good).code == 0
    failed = latentscale("compare", bad, good, "--fail-on-difference")
    assert failed.code == 1
    assert f"{Path(bad).name} differs from {Path(good).name}: " in failed.err
    assert latentscale("compare", good, good, "--fail-on-difference").code == 0
    # The output says which rows to look at, and what to do if the change is wanted.
    lines = dict(line.split(": ", 1) for line in third.out.splitlines())
    [rows_command] = [line.strip() for name, line in lines.items() if name == "rows"]
    assert rows_command == f"latentscale rows {bad} --only exact-duplicates"
    wanted = lines["if wanted"].strip()
    assert wanted == f"latentscale history accept history/ {Path(bad).name} --reason WHY"
    assert lines["corpus"].strip().endswith("night-3.npy, 270 rows")
    assert lines["verdict"].strip().startswith("Differs from the baseline. Exact duplicates: ")
    repeated = night(latentscale, 3)
    assert repeated.out == third.out, "an evaluation says again what it said"
    assert "was evaluated before, on 20" in repeated.err
    pasted = latentscale(*wanted.split()[1:])
    assert pasted.code == 2
    assert "write the reason in place of WHY" in pasted.err
    assert latentscale(*wanted.split()[1:-1], "a new line").code == 0
    again = night(latentscale, 3)
    assert again.code == 0, again.err
    accepted = f"{Path(bad).name}: failed, accepted: a new line"
    assert again.out.splitlines()[0] == accepted
    # It stays accepted when other gates judge it.
    write_workflow(place, job=recipe["job"], gates=[{"p_below": 0.02}])
    anew = night(latentscale, 3)
    assert anew.code == 0, anew.err
    assert "was evaluated before" not in anew.err
    assert anew.out.splitlines()[0] == accepted
    fourth = night(latentscale, 2, "-o", "job.seed=1")
    assert fourth.out.splitlines()[3] == f"baseline:   {bad}"


def test_without_a_baseline_a_failure_names_the_rows_that_differ_from_the_reference(
    place: Path, latentscale: Command
) -> None:
    write_workflow(place, gates=[{"p_below": 0.01}])
    recipe = yaml.safe_load((place / "nightly.yaml").read_text())
    recipe["job"] |= {"measures": {"duplicates": {}}, "reference": "night-1.npy"}
    (place / "nightly.yaml").write_text(yaml.safe_dump(recipe))
    rows = np.load(place / "night-3.npy")
    rows[: len(rows) // 5] = rows[0]
    np.save(place / "night-3.npy", rows)
    for _ in range(2):  # the second one says again what the first one said
        ended = night(latentscale, 3)
        assert ended.code == 1, ended.err
        said = [line.partition(":") for line in ended.out.splitlines()]
        commands = [text.strip() for name, _, text in said if name == "rows"]
        assert any(command.endswith("--only exact-duplicates") for command in commands)


def test_without_a_baseline_the_page_is_the_jobs_report(place: Path, latentscale: Command) -> None:
    limits = {"measure": "vendi", "score": "vendi", "of": "corpus"}
    job = {"measures": {"vendi": {"kernels": ["cosine"], "orders": [1, 2]}}}
    job["sampling"] = {"method": "none"}

    def write(**changes: Any) -> None:
        write_workflow(place, **changes)
        recipe = yaml.safe_load((place / "nightly.yaml").read_text())
        recipe["job"] |= job
        (place / "nightly.yaml").write_text(yaml.safe_dump(recipe))

    write(baseline="none", scales_from="job", gates=[{**limits, "min": 1000.0}])
    first = night(latentscale, 1)
    assert first.code == 1, first.err
    assert "baseline:   none, as the workflow says" in first.out
    assert "below the min of 1,000 (also vendi cosine, order 1 (corpus))" in first.err
    page = Path(first.out.partition("comparison: ")[2].splitlines()[0]).read_text()
    assert "against" not in page.partition("<title>")[2].partition("</title>")[0]
    opening = page.partition("A gate failed")[2]
    # What failed stands above the verdict.
    assert opening.index("The gate failed") < opening.index("Not compared.")
    write(gates=[{**limits, "min": 1.0}])
    second = night(latentscale, 2)
    assert second.code == 0, second.err
    assert "baseline:   none yet: no earlier job of other rows passed its gates" in second.out
    assert "none yet: no earlier" in night(latentscale, 2).out


def test_a_series_has_one_ruler_and_failures_are_no_baseline(
    place: Path, latentscale: Command
) -> None:
    for number in (1, 3):
        night(latentscale, number)
    second = night(latentscale, 2, "--json")
    assert second.code == 0, second.err
    document = json.loads(second.out)
    found = {item["corpora"]["corpus"]["uri"]: item for item in results(place)}
    assert len(found) == 3
    bandwidths = {
        entry["bandwidth"]
        for item in found.values()
        for entry in item["measures"]["vendi"]["corpus"]
        if entry["kernel"] == "rbf"
    }
    cuts = {item["measures"]["magnitude"]["corpus"]["scales"][-1] for item in found.values()}
    assert len(bandwidths) == len(cuts) == 1, "all take the first job's scales"
    listed = json.loads(latentscale("history", "list", "history", "--json").out)
    assert [entry["passed"] for entry in listed] == [True, False, True]
    assert document["baseline"] == listed[0]["folder"], "not the one that failed"
    assert listed[2]["job"] == document["job"]


def test_a_job_under_other_gates_is_not_its_own_baseline(place: Path, latentscale: Command) -> None:
    gate = {"measure": "vendi", "kernel": "cosine", "order": 1, "of": "corpus"}
    write_workflow(place, gates=[{**gate, "max_drop": 0.9}])
    assert night(latentscale, 1).code == 0
    assert night(latentscale, 3).code == 0
    write_workflow(place, gates=[{**gate, "max_drop": 0.1}])
    ended = night(latentscale, 3)
    assert ended.code == 1, ended.out
    assert "fell by" in ended.err
    [first, *_] = json.loads(latentscale("history", "list", "history", "--json").out)
    assert f"baseline:   {first['folder']}" in ended.out
    # The job passed once, but not the gates of today: it is no baseline, and sets no limits.
    following = night(latentscale, 2)
    assert f"baseline:   {first['folder']}" in following.out


def test_rows_that_come_back_meet_the_baseline_of_today(place: Path, latentscale: Command) -> None:
    gate = {"measure": "vendi", "kernel": "cosine", "order": 1, "of": "corpus", "max_drop": 0.1}
    write_workflow(place, gates=[gate])
    first, same = night(latentscale, 3), night(latentscale, 3)
    assert (first.code, same.code) == (0, 0)
    assert same.out == first.out
    assert "was evaluated before" in same.err
    better = night(latentscale, 1)
    assert better.code == 0, better.err
    for repeated in (False, True):
        back = night(latentscale, 3)
        assert back.code == 1, back.out
        assert "fell by" in back.err
        assert ("was evaluated before" in back.err) == repeated
    entries = Registry.existing(str(place / "history")).entries()
    assert len(entries) == 3
    assert [entry.passed for entry in sorted(entries, key=lambda entry: entry.registered)] == [
        *(True, True, False),
    ]
    assert night(latentscale, 1).code == 0


def test_the_latest_is_the_job_that_was_evaluated_last(place: Path, latentscale: Command) -> None:
    """Also one whose rows alternate with others; without scales they have one job each."""
    write_workflow(place, gates=[])
    few = ("-o", "job.measures={vendi: {kernels: [cosine], orders: [1]}}")
    for number in (1, 2, 1, 2, 1, 1):
        ended = night(latentscale, number, *few)
        assert ended.code == 0, ended.err
    assert "was evaluated before" in ended.err
    registry = Registry.existing(str(place / "history"))
    entries = sorted(registry.entries(), key=lambda entry: entry.registered)
    first, second = (entries[night].url for night in (0, 1))
    assert [entry.url for entry in entries] == [first, second, first, second, first]
    assert len(list(place.glob("jobs/nightly-*"))) == 2
    assert f"baseline:   {first}" in night(latentscale, 3, *few).out


def test_a_gate_that_cannot_be_checked_hides_no_other(place: Path, latentscale: Command) -> None:
    vendi = {"measure": "vendi", "kernel": "cosine", "order": 1, "of": "corpus"}
    gates = [vendi | {"max": 1.0}, vendi | {"scale": 7.0, "min": 1.0}, vendi | {"min": 1.0}]
    told = {"command": ["sh", "-c", "cat >> told.json"], "when": "failure"}
    write_workflow(place, gates=gates, notify=[told])
    few = ("-o", "job.measures={vendi: {kernels: [cosine], orders: [1]}}", "--allow-code")
    for _ in range(2):
        ended = night(latentscale, 1, *few)
        assert ended.code == 2
        failed, refused = ended.err.splitlines()[-2:]
        assert failed.startswith("gate failed: vendi cosine, order 1 (corpus) is ")
        assert refused.startswith("latentscale: nightly.yaml: gates.1 selects no score")
        assert "comparison: " in ended.out
        assert "accept" not in ended.out
    document = json.loads((place / "told.json").read_text())
    assert (document["passed"], len(document["failures"])) == (False, 2)
    [page] = place.glob("history/evaluations/*/comparison.json")
    outcomes = [gate["outcome"] for gate in json.loads(page.read_text())["gates"]]
    assert outcomes == ["failed", "unchecked", "passed"]
    described = json.loads(night(latentscale, 1, *few, "--json").out)
    assert described["unchecked"] == [refused.removeprefix("latentscale: ")]
    assert Registry.existing(str(place / "history")).entries() == []
    # Once every gate can be checked, it is registered.
    write_workflow(place, gates=gates[::2], notify=[told])
    assert night(latentscale, 1, *few).code == 1
    assert len(Registry.existing(str(place / "history")).entries()) == 1


def test_rows_are_judged_again_once_their_baseline_is_rejected(
    place: Path, latentscale: Command
) -> None:
    gate = {"measure": "vendi", "kernel": "cosine", "order": 1, "of": "corpus", "max_rise": 0.1}
    write_workflow(place, gates=[gate])
    assert night(latentscale, 3).code == 0
    assert night(latentscale, 1).code == 1
    (broken,) = [e for e in Registry.existing(str(place / "history")).entries() if e.passed]
    latentscale("history", "reject", place / "history", broken.job, "--reason", "a bad export")
    for repeated in (False, True):
        again = night(latentscale, 1)
        assert (again.code, "was evaluated before" in again.err) == (0, repeated), again.err


def test_a_baseline_that_is_gone_leaves_the_one_before(place: Path, latentscale: Command) -> None:
    write_workflow(place, gates=[])
    for number in (1, 3):
        assert night(latentscale, number).code == 0
    first, last = json.loads(latentscale("history", "list", "history", "--json").out)
    assert latentscale("history", "tag", "history", last["job"], "release").code == 0
    shutil.rmtree(last["folder"])
    ended = latentscale("workflow", "run", "nightly.yaml", "-o", "corpora.corpus=night-2.npy")
    assert ended.code == 0, ended.err
    assert f"{last['folder']} is gone, so an earlier job is the baseline\n" in ended.err
    assert f"baseline:   {first['folder']}" in ended.out
    write_workflow(place, gates=[], baseline={"tag": "release"})
    ended = night(latentscale, 2)
    assert ended.code == 2
    assert f"baseline.tag: the job of release, {last['folder']}, is gone" in ended.err


def test_a_lost_baseline_passes_nothing(place: Path, latentscale: Command) -> None:
    assert night(latentscale, 1).code == 0
    [first] = json.loads(latentscale("history", "list", "history", "--json").out)
    shutil.rmtree(first["folder"])
    ended = night(latentscale, 3)
    assert ended.code == 2, ended.out
    assert f"baseline: {first['folder']} is gone, and no earlier job is there; restore" in ended.err
    leave_out = ("history", "reject", "history", first["job"], "--reason", "deleted")
    assert latentscale(*leave_out).code == 0
    ended = night(latentscale, 3)
    assert (ended.code, "baseline:   none yet" in ended.out) == (0, True), ended.err


def test_a_registered_evaluation_keeps_its_verdict(place: Path, latentscale: Command) -> None:
    assert (night(latentscale, 1).code, night(latentscale, 2).code) == (0, 0)
    first, _ = json.loads(latentscale("history", "list", "history", "--json").out)
    shutil.rmtree(first["folder"])
    again = night(latentscale, 2)
    assert (again.code, "was evaluated before" in again.err) == (0, True), again.err


def test_labels_that_changed_are_another_evaluation(place: Path, latentscale: Command) -> None:
    rows = len(np.load(place / "night-1.npy"))
    kinds = (["x", "y"] * rows)[:rows]
    gate = {"measure": "label_shares", "label": "y", "max_drop": 0.3}
    corpora = {"corpus": "night-1.npy", "labels": "labels.txt"}
    write_workflow(place, gates=[gate], corpora=corpora)
    (place / "labels.txt").write_text("\n".join(kinds) + "\n")
    assert latentscale("workflow", "run", "nightly.yaml", "--quiet").code == 0
    assert "evaluated before" in latentscale("workflow", "run", "nightly.yaml", "--quiet").err
    fewer = [kind if place % 4 else "x" for place, kind in enumerate(kinds)]
    fewer = ["x" if place % 3 else kind for place, kind in enumerate(fewer)]
    (place / "labels.txt").write_text("\n".join(fewer) + "\n")
    ended = latentscale("workflow", "run", "nightly.yaml", "--quiet")
    assert ended.code == 1, ended.out + ended.err
    assert "label_shares share (label y) (corpus) fell by" in ended.err


def test_a_scale_that_the_baseline_lacks_is_derived(place: Path, latentscale: Command) -> None:
    write_workflow(place, gates=[])
    cosine = ("-o", "job.measures={vendi: {kernels: [cosine]}}")
    both = ("-o", "job.measures={vendi: {kernels: [cosine, {name: rbf, bandwidth: median}]}}")
    assert night(latentscale, 1, *cosine).code == 0
    ended = night(latentscale, 2, *both)
    assert ended.code == 0, ended.err
    assert "the baseline has no bandwidth, so this job derives its own\n" in ended.err
    third = night(latentscale, 3, *both)
    assert third.code == 0, third.err
    assert "derives its own" not in third.err
    second, last = (
        widths
        for job in results(place)
        # Jobs that end in one second have no order, and the first one has no such kernel.
        if (
            widths := {
                row["bandwidth"]
                for row in job["measures"]["vendi"]["corpus"]
                if row["kernel"] == "rbf"
            }
        )
    )
    assert len(second) == 1
    assert second == last


def test_an_evaluation_of_incomparable_scores_is_another_one(
    place: Path, latentscale: Command
) -> None:
    np.save(place / "night-9.npy", np.load(place / "night-1.npy")[:200])
    gate = {"measure": "vendi", "kernel": "cosine", "order": 1, "of": "corpus", "max_drop": 1e-9}
    write_workflow(place, gates=[gate], sampling={"method": "none"}, allow_incomparable=True)
    recipe = yaml.safe_load((place / "nightly.yaml").read_text())
    recipe["job"]["sampling"] = recipe.pop("sampling")
    (place / "nightly.yaml").write_text(yaml.safe_dump(recipe))
    assert night(latentscale, 1).code == 0
    assert night(latentscale, 9).code == 1
    ended = night(latentscale, 9, "-o", "allow_incomparable=false")
    assert ended.code == 2
    assert "which can't be compared: n of the corpus is 200 here" in ended.err


def test_an_address_that_cannot_be_read_ends_no_evaluation(
    place: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "https://[hooks.example.org/x")
    write_workflow(
        place, notify=[{"webhook_from": "HOOK"}], gates=[{"measure": "vendi", "min": 1e9}]
    )
    ended = latentscale("workflow", "run", "nightly.yaml", "-o", "corpora.corpus=night-1.npy")
    assert ended.code == 1, ended.err
    assert "gate failed: " in ended.err
    assert "the address in HOOK can't be read" in ended.err


def test_running_again_does_nothing_again(place: Path, latentscale: Command) -> None:
    warns = {"measure": "vendi", "kernel": "cosine", "order": 1, "label": None, "min": 1e9}
    write_workflow(place, gates=[{**warns, "of": "corpus", "severity": "warn"}])
    first = night(latentscale, 1, "--json")
    assert first.code == 0, first.err
    [warning] = json.loads(first.out)["warnings"]
    assert warning.endswith("below the min of 1e+09")
    assert f"gate warned: {warning}" in first.err
    [listed] = json.loads(latentscale("history", "list", "history", "--json").out)
    assert (listed["passed"], listed["failures"], listed["warnings"]) == (True, [], [warning])
    before = {path: path.stat().st_mtime_ns for path in place.glob("jobs/*/results.json")}
    again = night(latentscale, 1, "--json")
    assert json.loads(again.out) | {"evaluated_before": False} == json.loads(first.out)
    assert json.loads(again.out)["evaluated_before"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(place.glob("history/entries/*.parquet"))) == 1
    # An evaluation that was killed before it was registered goes on from its finished job.
    (entry,) = place.glob("history/entries/*.parquet")
    entry.unlink()
    resumed = night(latentscale, 1, "--json")
    assert json.loads(resumed.out) == json.loads(first.out)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_second_run_steps_aside(place: Path, latentscale: Command) -> None:
    # The first run, a process of its own, is held up while it tells someone.
    wait = f"touch told; while [ ! -e {place}/go ]; do sleep 0.05; done"
    write_workflow(place, notify=[{"command": ["sh", "-c", wait], "when": "always"}])
    command = [LATENTSCALE, "workflow", "run", "nightly.yaml", "--quiet", "--allow-code"]
    corpora = "corpora.corpus=night-1.npy"
    first = subprocess.Popen([*command, "-o", corpora], stdout=subprocess.PIPE, text=True)
    try:
        wait_for("the first run", (place / "told").exists, 120)
        second = night(latentscale, 2, "--allow-code", "--json")
    finally:
        (place / "go").touch()
        said, _ = first.communicate(timeout=120)
    assert first.returncode == 0
    assert ": passed\n" in said
    assert second.code == 0
    assert json.loads(second.out) == {"stepped_aside": True}
    assert "another run of nightly is under way (process " in second.err
    assert len(results(place)) == 1
    assert night(latentscale, 2, "--allow-code").code == 0
    assert len(results(place)) == 2


def test_commands_run_only_where_they_are_allowed(place: Path, latentscale: Command) -> None:
    command = ["sh", "-c", "cat > told.json; echo $0 > argument", "two words; touch oops"]
    write_workflow(place, notify=[{"command": command, "when": "always"}])
    refused = night(latentscale, 1)
    assert refused.code == 2
    assert "notify names a command, sh, which would be run" in refused.err
    assert not (place / "jobs").exists(), "refused before any work"
    assert night(latentscale, 1, "--allow-code").code == 0
    assert json.loads((place / "told.json").read_text())["passed"] is True
    assert (place / "argument").read_text() == "two words; touch oops\n"
    assert not (place / "oops").exists()
    # Each is known by what it is: another one before it isn't taken for the one that was told.
    (place / "told.json").unlink()
    other = {"command": ["sh", "-c", "echo other >> other"], "when": "always"}
    write_workflow(place, notify=[other, {"command": command, "when": "always"}])
    for _ in range(2):
        assert night(latentscale, 1, "--allow-code").code == 0
    assert (place / "other").read_text() == "other\n"
    assert not (place / "told.json").exists()


def test_a_fixed_baseline_and_its_tag(place: Path, latentscale: Command) -> None:
    night(latentscale, 1)
    (job,) = (path.name for path in place.glob("jobs/nightly-*"))
    assert latentscale("history", "tag", "history", job, "release").code == 0
    night(latentscale, 2)
    tagged = night(latentscale, 3, "--json", "-o", "baseline={tag: release}")
    assert tagged.code == 1
    assert json.loads(tagged.out)["baseline"].endswith(job)
    unknown = night(latentscale, 3, "-o", "baseline={tag: relaese}")
    assert unknown.code == 2
    assert "no job is tagged relaese; there is release" in unknown.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gate": []}, "gate is unknown; did you mean gates?"),
        ({"baseline": {"tag": "a", "job": "b"}}, "write latest, none, {tag: WORD}"),
        ({"baseline": "last"}, "baseline: write latest, none, {tag: WORD} or {job: FOLDER}"),
        ({"notify": [{"webhook": "ftp://a"}]}, "a webhook is an http:// or https:// address"),
        ({"notify": [{"when": "always"}]}, "name one of webhook, webhook_from and command"),
        ({"gates": "missing.yaml"}, "gates: missing.yaml: No such file"),
        ({"job": "missing.yaml"}, "job: missing.yaml: No such file"),
        ({"job": {"measures": {"vendy": {}}}}, "measures.vendy is unknown; did you mean vendi?"),
        ({"gates": [{"measure": "vendi"}]}, "gates.0: it sets no limit"),
        ({"corpora": {"reference": ["a"]}}, "corpora.reference: give one path, pattern or URL"),
        (
            {"corpora": {"reference_vectors": "a"}},
            "corpora.reference_vectors needs corpora.reference",
        ),
    ],
)
def test_mistakes_are_one_line(
    place: Path, latentscale: Command, change: dict[str, Any], message: str
) -> None:
    write_workflow(place, **change)
    ended = night(latentscale, 1)
    assert ended.code == 2
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (
            {"measure": "vendi", "score": "vendy", "min": 1.0},
            "gates.0: vendi has no score vendy; did you mean vendi?",
        ),
        (
            {"measure": "magnitude", "score": "MAG", "p_below": 0.01},
            "gates.0: magnitude has no score MAG; it can be",
        ),
        (
            {"measure": "vend", "min": 1.0},
            "gates.0: the job doesn't measure vend; did you mean vendi?",
        ),
        (
            {"measure": "vendi", "kernel": "laplacian", "max_drop": 0.1},
            "gates.0: vendi has no kernel laplacian in this job; it can be",
        ),
        (
            {"measure": "vendi", "order": 3, "max_drop": 0.1},
            "gates.0: vendi has no order 3 in this job; it can be",
        ),
        (
            {"score": "vendi", "kernel": "laplacian", "max_drop": 0.1},
            "gates.0: vendi has no kernel laplacian in this job; it can be",
        ),
        (
            {"score": "vendy", "max": 0.1},
            "gates.0: the job has no score vendy; did you mean vendi?",
        ),
    ],
)
def test_mistakes_in_gates_are_found_before_the_job_runs(
    place: Path, latentscale: Command, gate: dict[str, Any], message: str
) -> None:
    write_workflow(place, gates=[gate])
    ended = night(latentscale, 1)
    assert ended.code == 2
    assert message in ended.err
    assert not list(place.glob("jobs/nightly-*/results.json"))


@pytest.mark.parametrize("limit", ["max_drop", "max_rise", "p_below"])
def test_a_gate_that_needs_a_baseline_is_refused_without_one(
    place: Path, latentscale: Command, limit: str
) -> None:
    write_workflow(place, gates=[{"measure": "vendi", limit: 0.1}], baseline="none")
    ended = night(latentscale, 1)
    assert ended.code == 2
    assert f"gates.0 has {limit}, and there is n" in ended.err
    write_workflow(place, gates=[{"measure": "vendi", "min": 1.0}], baseline="none")
    assert night(latentscale, 1).code == 0


def test_columns_of_sources_are_named_in_the_workflow(place: Path, latentscale: Command) -> None:
    rows = np.load(place / "night-1.npy")
    rows[3] = np.nan
    for name, vectors in (("night-7", "emb"), ("usual", "vector")):
        columns = {
            "doc": [f"{name} {i}" for i in range(len(rows))],
            "topic": ["even", "odd"] * (len(rows) // 2),
            vectors: pa.array(rows.tolist(), pa.list_(pa.float32())),
            "other": pa.array(rows.tolist(), pa.list_(pa.float32())),
        }
        pa.parquet.write_table(pa.table(columns), place / f"{name}.parquet")
    named = {"vectors": "emb", "ids_column": "doc", "labels_column": "topic", "on_invalid": "drop"}
    write_workflow(place, corpora={"corpus": "night-7.parquet", **named})
    ended = latentscale("workflow", "run", "nightly.yaml")
    assert ended.code == 0, ended.err
    told = [line for line in ended.err.splitlines() if line.startswith("ingest: ")]
    assert "ingest: ids from column doc" in told
    assert (
        "ingest: 1 row of the corpus left out (NaN, infinity, or out of the range of float32); "
        "the first is source row 3" in told
    )
    [job] = results(place)
    assert job["corpora"]["corpus"]["n"] == len(rows) - 1
    [folder] = place.glob("jobs/nightly-*")
    shown = latentscale("rows", folder, "--columns", "id,label", "--limit", "1").out
    assert ["night-7", "0", "even"] in [line.split() for line in shown.splitlines()]

    both = {"corpus": "night-7.parquet", "reference": "usual.parquet", **named}
    write_workflow(place, corpora=both)
    ended = latentscale("workflow", "run", "nightly.yaml", "--quiet")
    assert ended.code == 2
    assert "for the reference alone, with corpora.reference_vectors, " in ended.err
    write_workflow(place, corpora={**both, "reference_vectors": "vector"}, gates=[])
    ended = latentscale("workflow", "run", "nightly.yaml", "--quiet")
    assert ended.code == 0, ended.err


def test_a_missing_baseline_is_told_by_its_own_key(place: Path, latentscale: Command) -> None:
    write_workflow(place, baseline={"job": "jobs/release"})
    ended = night(latentscale, 1)
    assert ended.code == 2
    assert "baseline.job: " in ended.err
    assert "/jobs/release: no results.json here; name the folder" in ended.err
    assert "scales_from" not in ended.err


def test_a_missing_address_is_said_before_the_job_runs(
    place: Path, latentscale: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NIGHTLY_WEBHOOK", raising=False)
    write_workflow(place, notify=[{"webhook_from": "NIGHTLY_WEBHOOK", "when": "failure"}])
    ended = night(latentscale, 1)
    assert ended.code == 0
    [said] = [line for line in ended.err.splitlines() if "NIGHTLY_WEBHOOK" in line]
    assert said.endswith(
        "no http address in NIGHTLY_WEBHOOK; nobody will be told there until it is set"
    )
