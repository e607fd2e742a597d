"""``latentscale compare`` as a person and as CI run it: what is printed, and how it ends."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.storage.objects import ObjectStore
from tests.conftest import Ended
from tests.pipeline.measures.test_registry import Toy, run_toy
from tests.support.comparisons import SETTINGS, results, row, write_job

Command = Callable[..., Ended]

VENDI = {"measure": "vendi", "score": "vendi", "kernel": "cosine", "order": "1"}


@pytest.fixture
def jobs(tmp_path: Path) -> tuple[Path, Path]:
    """A job whose Vendi score fell by a quarter, and its baseline."""
    heat = row(1.0, measure="heat", score="imd", of="pair", size_dependent=False)
    return (
        write_job(tmp_path / "jobs/nightly-1a2b3c4d", row(7.5, **VENDI), heat),
        write_job(
            tmp_path / "jobs/release-1a2b3c4d", row(10.0, **VENDI), heat, name="release", n=100
        ),
    )


@pytest.fixture
def gates(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str) -> Path:
        path = tmp_path / "gates.yaml"
        path.write_text("gates:\n" + "".join(f"- {line}\n" for line in lines))
        return path

    return write


PASSING = "{measure: vendi, kernel: cosine, order: '1', max_drop: 0.25}"
FAILING = "{measure: vendi, kernel: cosine, order: '1', max_drop: 0.1}"


def test_a_table_by_default(latentscale: Command, jobs: tuple[Path, Path]) -> None:
    ended = latentscale("compare", *jobs)
    assert (ended.code, ended.err) == (0, "")
    [line] = [line for line in ended.out.splitlines() if "cosine, order 1" in line]
    cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
    unknown = "beyond brackets, sampling error unknown"
    assert cells == ["Vendi score, cosine, order 1", "7.5", "10", "-25 %", unknown]
    [line] = [x for x in latentscale("compare", *jobs, "--all").out.splitlines() if "order 1" in x]
    for part in ("vendi  ", "7.5 ± 0", "10 ± 0", "-2.5", "-25 %", unknown):
        assert part in line


def test_gates_that_pass(
    latentscale: Command, jobs: tuple[Path, Path], gates: Callable[..., Path]
) -> None:
    ended = latentscale("compare", *jobs, "--gates", gates(PASSING, "{score: imd, max: 1}"))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-2:] == [
        "passed     measure=vendi kernel=cosine order=1 max_drop=0.25 (1 score)",
        "passed     score=imd max=1 (1 score)",
    ]


def test_a_gate_that_fails_is_one_line_and_exit_code_1(
    latentscale: Command, jobs: tuple[Path, Path], gates: Callable[..., Path], tmp_path: Path
) -> None:
    path = gates(FAILING, PASSING, "{score: imd, max: 0.5}")
    files = ("--junit", tmp_path / "gates.xml", "--markdown", tmp_path / "comment.md")
    ended = latentscale("compare", *jobs, "--gates", path, *files, "--json")
    assert ended.code == 1
    assert ended.err.splitlines() == [
        (
            "gate failed: vendi cosine, order 1 (corpus) fell by 25 %, from 10 to 7.5; max_drop "
            "allows 10 %"
        ),
        "gate failed: heat imd (pair) is 1, above the max of 0.5",
        "latentscale: 2 of 3 gates failed",
    ]
    assert json.loads(ended.out)["passed"] is False
    suite = ET.parse(tmp_path / "gates.xml").getroot()[0]
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("3", "2")
    assert "❌ 2 of 3 gates failed." in (tmp_path / "comment.md").read_text("utf-8")


@pytest.mark.parametrize("option", [["--markdown"], ["--markdown", "-"]])
def test_markdown_alone_is_printed(
    latentscale: Command, jobs: tuple[Path, Path], option: list[str]
) -> None:
    ended = latentscale("compare", *jobs, *option)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("## latentscale compare\n")
    assert ended.out.count("\n| ---") == 2


def test_markdown_in_a_file_leaves_the_table(
    latentscale: Command, jobs: tuple[Path, Path], tmp_path: Path
) -> None:
    ended = latentscale("compare", *jobs, "--markdown", tmp_path / "comment.md")
    assert ended.out.startswith("job       nightly")
    assert (tmp_path / "comment.md").read_text("utf-8").startswith("## latentscale compare\n")


def test_unlike_scores_are_left_out_unless_told(
    latentscale: Command, jobs: tuple[Path, Path], tmp_path: Path
) -> None:
    other = write_job(
        tmp_path / "other",
        row(10.0, **VENDI),
        settings={**SETTINGS, "measures": {**SETTINGS["measures"], "heat": {"k": 7}}},
        n=50,
    )
    ended = latentscale("compare", jobs[0], other)
    assert ended.code == 0
    assert "CANNOT TELL" in ended.out
    assert [line for line in ended.out.splitlines() if "Unlike" in line][::2] == [
        "Unlike: measures.heat.k is 5 here and 7 in the baseline.",
        "Unlike: n of the corpus is 100 here and 50 in the baseline (vendi depends on it).",
    ]
    assert "not comparable" in ended.out
    gates = tmp_path / "gates.yaml"
    gates.write_text("gates: [{measure: vendi, max_drop: 0.9}]")
    ended = latentscale("compare", jobs[0], other, "--gates", gates)
    assert ended.code == 2
    assert ended.out.splitlines()[-1].startswith("UNCHECKED  measure=vendi max_drop=0.9 ")
    assert ended.err.startswith(f"latentscale: {gates}: gates.0 selects vendi cosine, order 1 ")
    assert ended.err.endswith(
        "; compare anyway with --allow-incomparable (allow_incomparable: true in a workflow)\n"
    )
    before = latentscale("compare", jobs[0], other, "--allow-unlike", "--all")
    ended = latentscale("compare", jobs[0], other, "--allow-incomparable", "--all")
    assert ended.code == 0
    assert before == ended, "the option's first name is still read"
    assert "beyond brackets, sampling error unknown (incomparable)" in ended.out
    assert "Unlike: measures.heat.k is 5 here and 7 in the baseline." in ended.out
    [imd] = [line for line in ended.out.splitlines() if "imd" in line]
    assert imd.endswith("only in the job")


def test_jobs_in_an_object_store(
    latentscale: Command, jobs: tuple[Path, Path], s3_url: str
) -> None:
    store = ObjectStore(f"{s3_url}/jobs/release")
    document = results([row(10.0, **VENDI)], name="release")
    store.write("results.json", json.dumps(document).encode())
    store.write("config.json", json.dumps(SETTINGS).encode())
    ended = latentscale("compare", jobs[0], f"{s3_url}/jobs/release", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["baseline"]["uri"] == f"{s3_url}/jobs/release"
    assert [score["difference"]["value"] for score in found["scores"]] == [-2.5]
    ended = latentscale("compare", f"{s3_url}/jobs/none", jobs[0])
    assert ended.code == 2
    assert ended.err.startswith(f"latentscale: {s3_url}/jobs/none: no results.json here; name the")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{job}", "{place}/none"], "{place}/none: no results.json here; name the folder of a fin"),
        (["{job}/results.json", "{job}"], "{job}/results.json: no results.json here; name the fo"),
        (["{job}", "{place}/begun"], "{place}/begun: this job isn't finished; run it again"),
        (["{job}", "{place}/torn"], "{place}/torn/results.json: not a JSON object; the file is d"),
        (["{job}", "{place}/odd"], "{place}/odd/results.json: schema is missing"),
        (["{job}", "ftpp://x/y"], "ftpp://x/y: can't open this kind of URL"),
        (["{job}", "{job}", "--gates", "{place}/no.yaml"], "{place}/no.yaml: No such file or dir"),
        (["{job}", "{job}", "--gates", "{place}"], "{place}: Is a directory; name a YAML file wit"),
        (["{job}", "{job}", "--markdown", "{place}/typo.yaml/c.md"], "{place}/typo.yaml/c.md: "),
        (
            ["{job}", "{job}", "--gates", "{place}/typo.yaml"],
            (
                "{place}/typo.yaml: gates.0 selects no score: none with measure vendi has kernel "
                "cosi; did you mean cosine?"
            ),
        ),
        (
            ["{job}", "{job}", "--gates", "{place}/significant.yaml"],
            "{place}/significant.yaml: gates.0 asks for significance and the sampling error of ven",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    latentscale: Command,
    jobs: tuple[Path, Path],
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    for name in ("begun", "torn", "odd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "torn/results.json").write_text('{"schema": ')
    (tmp_path / "odd/results.json").write_text('{"job": {"id": "a", "name": "a"}, "corpora": {}}')
    (tmp_path / "typo.yaml").write_text("gates: [{measure: vendi, kernel: cosi, min: 0}]")
    (tmp_path / "significant.yaml").write_text(
        "gates: [{measure: vendi, max_drop: 0.9, significant: true}]"
    )
    places = {"job": str(jobs[0]), "place": str(tmp_path)}
    ended = latentscale("compare", *(argument.format(**places) for argument in arguments))
    assert ended.code == 2
    # A gate that can't be checked is beside a comparison that can be shown.
    assert ended.out == "" or ended.out.splitlines()[-1].startswith("UNCHECKED  measure=vendi ")
    assert (ended.out == "") != ("gates.0 " in message)
    assert ended.err.startswith(f"latentscale: {message.format(**places)}")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "name a job and, last, the baseline to compare it with"),
        (
            ["a", "b", "--junit", "x.xml"],
            "--junit writes the results of gates; name them with --gates",
        ),
        (["a", "b", "--json", "--markdown"], "--json and --markdown both print; name a file"),
        (["a", "b", "--history", "h"], "--history is for gates with drift; name them with --gates"),
    ],
)
def test_bad_usage(latentscale: Command, arguments: list[str], message: str) -> None:
    ended = latentscale("compare", *arguments)
    assert ended.code == 2
    assert message in ended.err


# --- real jobs --------------------------------------------------------------------------------


def test_a_toy_measure_is_compared_and_gated_by_itself(
    latentscale: Command,
    tmp_path: Path,
    gates: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MEASURES, "mean_norm", Toy())
    finished = run_toy(tmp_path)
    place = finished.store.url
    path = gates("{measure: mean_norm, max: 42}", "{measure: mean_norm, max_rise: 0, min: 42.5}")
    ended = latentscale("compare", place, place, "--gates", path, "--json")
    assert ended.code == 1
    assert ended.err.splitlines()[0] == (
        "gate failed: mean_norm (corpus) is 42, below the min of 42.5"
    )
    scores = json.loads(ended.out)["scores"]
    [toy] = [score for score in scores if score["measure"] == "mean_norm"]
    assert toy["difference"]["value"] == 0.0
    assert toy["verdict"] == "within bounds"


def run_on(
    latentscale: Command,
    place: Path,
    name: str,
    n: int,
    measures: str,
    scale: float = 1.0,
    **keys: Any,
) -> Path:
    rows = np.random.default_rng(n).normal(scale=scale, size=(n, 4))
    np.save(place / f"{name}.npy", rows.astype("f4"))
    config = place / f"{name}.yaml"
    lines = {
        "name": name,
        "corpus": place / f"{name}.npy",
        "output": place / "jobs",
        "measures": measures,
        "cluster": "{kind: serial}",
        **keys,
    }
    config.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    ended = latentscale("run", config, "--quiet")
    assert ended.code == 0, ended.err
    [folder] = (place / "jobs").glob(f"{name}-*")
    return folder


@pytest.mark.parametrize(
    ("measures", "alike"),
    [
        ("{heat: {}}", True),
        ("{heat: {normalization: none}}", False),
        ("{heat: {normalization: complete}}", True),
        ("{heat: {normalization: complete, laplacian: unnormalized}}", False),
        ("{heat: {normalization: complete, times: {start: 5, stop: 9}}}", False),
        ("{vendi: {kernels: [cosine]}}", False),
    ],
)
def test_which_scores_depend_on_the_number_of_rows(
    latentscale: Command, tmp_path: Path, measures: str, alike: bool
) -> None:
    first = run_on(latentscale, tmp_path, "first", 60, measures)
    second = run_on(latentscale, tmp_path, "second", 64, measures)
    ended = latentscale("compare", second, first)
    assert ended.code == 0
    assert ("n of the corpus is 64 here and 60 in the baseline" in ended.out) != alike


def test_geomca_on_a_fixed_number_of_rows_does_not_depend_on_it(
    latentscale: Command, tmp_path: Path
) -> None:
    np.save(tmp_path / "r.npy", np.random.default_rng(9).normal(size=(50, 4)).astype("f4"))
    drawn = {"measures": "{geomca: {rows: 40}}", "reference": tmp_path / "r.npy"}
    jobs = [run_on(latentscale, tmp_path, f"rows-{n}", n, **drawn) for n in (60, 64)]
    assert "Unlike" not in latentscale("compare", *jobs).out
    drawn["measures"] = "{geomca: {rows: 62}}"
    jobs = [run_on(latentscale, tmp_path, f"few-{n}", n, **drawn) for n in (60, 64)]
    assert "n of the corpus is 60 here and 64" in latentscale("compare", *jobs).out


def test_scales_of_the_baseline_make_two_corpora_comparable(
    latentscale: Command, tmp_path: Path
) -> None:
    measures = "{vendi: {kernels: [rbf], orders: [2]}}"
    first = run_on(latentscale, tmp_path, "first", 60, measures)
    second = run_on(latentscale, tmp_path, "second", 60, measures, scale=3.0)
    reusable = run_on(latentscale, tmp_path, "lent", 60, measures, scale=3.0, scales_from=first)
    (tmp_path / "gates.yaml").write_text("gates: [{measure: vendi, max_drop: 0.9}]")
    gates = ("--gates", tmp_path / "gates.yaml")
    ended = latentscale("compare", second, first, *gates)
    assert ended.code == 2
    assert "bandwidth of vendi rbf is " in ended.err
    assert "give both jobs the same scales (scales_from: a finished job), or compare" in ended.err
    ended = latentscale("compare", reusable, first, *gates)
    assert ended.code == 0, ended.err


def test_several_jobs_beside_one_baseline(latentscale: Command, tmp_path: Path) -> None:
    folders = [
        write_job(tmp_path / f"{name}-1a2b3c4d", row(value, **VENDI), *others, name=name)
        for name, value, others in (
            ("small", 7.5, ()),
            ("large", 9.0, (row(0.5, measure="heat", score="imd", of="pair"),)),
            ("release", 10.0, ()),
        )
    ]
    ended = latentscale("compare", *folders)
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split("  ") for line in ended.out.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["release", "small", "large"] in cells
    assert ["Vendi score, cosine, order 1", "10", "7.5", "9"] in cells
    for name in ("small", "large"):
        assert f"{name}: NO DIFFERENCE FOUND\n  Both jobs measured the same rows" in ended.out

    document = json.loads(latentscale("compare", *folders, "--json").out)
    assert document["schema"] == "latentscale.comparisons/1"
    found = [(each["job"]["name"], each["baseline"]["name"]) for each in document["comparisons"]]
    assert found == [("small", "release"), ("large", "release")]
    values = [each["scores"][0]["job"]["value"] for each in document["comparisons"]]
    assert values == [7.5, 9.0]
    alone = json.loads(latentscale("compare", folders[1], folders[2], "--json").out)
    assert alone == document["comparisons"][1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "name a job and, last, the baseline to compare it with"),
        (
            ["a", "b", "c", "--gates", "g"],
            "--gates is for one job and its baseline; 2 jobs are named",
        ),
        (
            ["a", "b", "c", "--junit", "g"],
            "--junit is for one job and its baseline; 2 jobs are named",
        ),
    ],
)
def test_what_several_jobs_have_not(latentscale: Command, arguments: list[str], said: str) -> None:
    ended = latentscale("compare", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"latentscale: {said}; see latentscale compare --help\n"


def test_gates_that_can_be_checked_are_beside_one_that_can_not(
    latentscale: Command, jobs: tuple[Path, Path], gates: Callable[..., Path], tmp_path: Path
) -> None:
    junit, comment = tmp_path / "gates.xml", tmp_path / "comment.md"
    junit.write_text("of yesterday")
    third = "{measure: modes, min: 1}"
    path = gates("{measure: geomca, min: 1}", FAILING, PASSING, third)
    files = ("--junit", junit, "--markdown", comment)
    ended = latentscale("compare", *jobs, "--gates", path, *files, "--json")
    assert ended.code == 2
    failed, also, refused = ended.err.splitlines()
    assert also.startswith(f"gate unchecked: {path}: gates.3 selects no score")
    assert failed.startswith("gate failed: vendi cosine, order 1 (corpus) fell by 25 %")
    reason = refused.removeprefix("latentscale: ")
    assert reason.startswith(f"{path}: gates.0 selects no score: none has measure geomca")
    document = json.loads(ended.out)
    assert [gate["outcome"] for gate in document["gates"]] == [
        *("unchecked", "failed", "passed", "unchecked")
    ]
    assert (document["gates"][0]["refusal"], document["passed"]) == (reason, False)
    [suite] = ET.parse(junit).getroot()
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("1", "2")
    assert [[child.tag for child in case] for case in suite] == [
        *(["error"], ["failure"], [], ["error"])
    ]
    assert suite[0][0].attrib["message"] == reason
    text = comment.read_text()
    assert "❌ 1 of 4 gates failed. ❌ 2 of 4 gates can't be checked." in text
    assert "| unchecked:<br>" in text
    shown = latentscale("compare", *jobs, "--gates", path).out.splitlines()
    assert "UNCHECKED  measure=geomca min=1 (can't be checked)" in shown
    page = tmp_path / "r.md"
    reported = latentscale("report", *jobs, "--gates", path, "--output", page)
    assert reported.code == 2
    assert reported.err == f"report: {page}\nlatentscale: {reason}\n"
    assert reason.partition(": ")[2] in page.read_text()
