"""How a comparison is shown: JSON, JUnit, Markdown and tables, with hostile names in each."""

import io
import json
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from latentscale_pipeline.compare.cells import summarise_score
from latentscale_pipeline.compare.columns import headline_scores
from latentscale_pipeline.compare.document import comparison_document, dump_document
from latentscale_pipeline.compare.gate_checks import GateResult, check_gates
from latentscale_pipeline.compare.gates import Gate
from latentscale_pipeline.compare.jobs import Comparison, compare
from latentscale_pipeline.compare.junit import junit_xml
from latentscale_pipeline.compare.markdown import comparison_markdown
from latentscale_pipeline.compare.terminal import print_comparison
from tests.support.comparisons import SETTINGS, comparison, job, results, row
from tests.support.results_documents import finished_job

OURS = [
    row(12.0, 0.5, sampling_error=0.3, measure="vendi", score="vendi", kernel="rbf", order="1"),
    row(4.0, measure="geomca", score="recall", of="pair"),
    row(0.0, measure="vendi", score="vendi", kernel="rbf", order="2", sampling_error=1.0),
    row(None, reason="all rows are the same", measure="magnitude", score="area"),
    row(1.5, label="new"),
]
THEIRS = [
    row(10.0, 0.25, sampling_error=0.4, measure="vendi", score="vendi", kernel="rbf", order="1"),
    row(5.0, measure="geomca", score="recall", of="pair"),
    row(0.0, measure="vendi", score="vendi", kernel="rbf", order="2", sampling_error=1.0),
    row(3.0, measure="magnitude", score="area"),
    row(2.5, label="old"),
]
HOSTILE = "a|b\\|c`d`<script>alert(1)</script>&amp;*x*_y_[z](u)\n| --- |\x1b[2J\u202e]]> @team #12"
SHOWN = HOSTILE.replace("\n", "�").replace("\x1b", "�").replace("\u202e", "�")


def compared() -> Comparison:
    return comparison(OURS, THEIRS)


def checked(found: Comparison, *gates: Gate) -> list[GateResult]:
    chosen = gates or (
        Gate(measure="vendi", max_drop=0.1),
        Gate(measure="geomca", max_drop=0.1, min=4.5),
        Gate(measure="magnitude", min=1.0),
    )
    return list(check_gates(chosen, found, "gates.yaml"))


def hostile() -> Comparison:
    ours = [
        row(1.0, label=HOSTILE, unit=HOSTILE),
        row(None, reason=HOSTILE, measure=HOSTILE, score=HOSTILE, kernel=HOSTILE, order=HOSTILE),
        row(2.0, label="other"),
    ]
    theirs = [row(2.0, label=HOSTILE, unit=HOSTILE), {**ours[1]}]
    settings = {**SETTINGS, "measures": {HOSTILE: {HOSTILE: HOSTILE}}}
    other = {**SETTINGS, "measures": {HOSTILE: {HOSTILE: "tame"}}}
    return compare(
        job(*ours, settings=settings, name=HOSTILE),
        job(*theirs, settings=other, name=HOSTILE, n=7),
    )


# --- JSON -------------------------------------------------------------------------------------


def test_the_document_by_hand() -> None:
    document = json.loads(dump_document(comparison_document(compared(), checked(compared()))))
    assert list(document) == [
        *("schema", "job", "baseline", "unlike", "notes", "rows", "verdict", "scores"),
        *("only_in_job", "only_in_baseline", "gates", "passed"),
    ]
    assert document["schema"] == "latentscale.comparison/1"
    assert document["job"] == {
        "id": "nightly-1a2b3c4d",
        "name": "nightly",
        "uri": "jobs/nightly-1a2b3c4d",
    }
    assert document["passed"] is False
    assert document["scores"][0] == {
        "measure": "vendi",
        "of": "corpus",
        "score": "vendi",
        "kernel": "rbf",
        "order": "1",
        "unit": "paws",
        "better": "high",
        "job": {
            "value": 12.0,
            "lower": 11.5,
            "upper": 12.5,
            "bounds": "certified",
            "sampling_error": 0.3,
        },
        "baseline": {
            "value": 10.0,
            "lower": 9.75,
            "upper": 10.25,
            "bounds": "certified",
            "sampling_error": 0.4,
        },
        "difference": {
            "value": 2.0,
            "lower": 1.25,
            "upper": 2.75,
            "sampling_error": 0.5,
            "relative": 0.2,
        },
        "beyond_bounds": True,
        "significant": True,
        "expected_reason": "the job has no samples of it",
        "verdict": "significant",
        "unlike": [],
    }
    recall, zero, area = document["scores"][1:]
    assert recall["significant"] is None
    assert recall["significant_reason"] == "sampling error unknown in the job and in the baseline"
    assert recall["verdict"] == "beyond bounds, sampling error unknown"
    assert zero["difference"]["relative"] is None
    assert zero["difference"]["relative_reason"].startswith("no share of the baseline")
    assert area["job"]["reason"] == "all rows are the same"
    assert area["difference"] is None
    assert area["difference_reason"] == "job: all rows are the same"
    assert area["significant_reason"] == "job: all rows are the same"
    assert [found["label"] for found in document["only_in_job"]] == ["new"]
    assert [found["value"] for found in document["only_in_baseline"]] == [2.5]
    assert [gate["passed"] for gate in document["gates"]] == [True, False, False]
    geomca = document["gates"][1]
    assert geomca["gate"] == {"measure": "geomca", "max_drop": 0.1, "min": 4.5}
    assert [failure["limit"] for failure in geomca["failures"]] == ["min", "max_drop"]
    assert geomca["selected"][0]["score"] == "recall"


def test_without_gates_nothing_passed_or_failed() -> None:
    document = comparison_document(compared())
    assert document["gates"] is None
    assert document["passed"] is None


def test_the_document_names_what_is_unlike() -> None:
    ours = job(row(1.0, measure="heat"), settings=SETTINGS)
    theirs = job(row(1.0, measure="heat"), n=7)
    document = comparison_document(compare(ours, theirs))
    assert document["unlike"] == [{"what": "n of the corpus", "job": 100, "baseline": 7}]
    assert document["scores"][0]["unlike"] == ["n of the corpus"]


# --- JUnit ------------------------------------------------------------------------------------


def check_junit(text: str) -> list[ET.Element]:
    """Return the test cases of a document that follows the common JUnit schema."""
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    [suite] = root
    assert suite.tag == "testsuite"
    cases = list(suite)
    failed = [case for case in cases if case.find("failure") is not None]
    for element in (root, suite):
        assert element.attrib["name"]
        assert int(element.attrib["tests"]) == len(cases)
        assert int(element.attrib["failures"]) == len(failed)
        unchecked = [case for case in cases if case.find("error") is not None]
        assert int(element.attrib["errors"]) == len(unchecked)
        assert float(element.attrib["time"]) == 0
    for case in cases:
        assert case.tag == "testcase"
        assert set(case.attrib) == {"classname", "name", "time"}
        assert [child.tag for child in case] in ([], ["failure"], ["error"], ["system-out"])
    for case in failed:
        assert set(case[0].attrib) == {"message", "type"}
    return cases


def test_one_test_case_a_gate() -> None:
    text = junit_xml(compared(), checked(compared()))
    assert text.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ')
    cases = check_junit(text)
    assert [case.attrib["name"] for case in cases] == [
        "measure=vendi max_drop=0.1",
        "measure=geomca max_drop=0.1 min=4.5",
        "measure=magnitude min=1",
    ]
    assert [case.find("failure") is None for case in cases] == [True, False, False]
    failure = cases[1][0]
    assert failure.attrib["type"] == "min"
    assert failure.attrib["message"] == (
        "geomca recall (pair) is 4, below the min of 4.5 (and 1 more limit)"
    )
    assert (failure.text or "").splitlines() == [
        "geomca recall (pair) is 4, below the min of 4.5",
        "geomca recall (pair) fell by 20 %, from 5 to 4; max_drop allows 10 %",
    ]


def test_hostile_names_are_text_in_junit() -> None:
    found = hostile()
    results = checked(found, Gate(label=HOSTILE, min=3.0), Gate(measure=HOSTILE, max=1.0))
    [first, second] = check_junit(junit_xml(found, results))
    assert first.attrib["name"] == f"label={SHOWN} min=3"
    assert SHOWN in first[0].attrib["message"]
    assert second[0].attrib["message"].endswith(f"is null: {SHOWN}")


def test_a_gate_that_checked_nothing_says_so_everywhere() -> None:
    result = GateResult(Gate(measure="toy", min=1.0), (), (), "3 earlier jobs; limits begin at 5")
    [case] = check_junit(junit_xml(compared(), [result]))
    assert [child.tag for child in case] == ["system-out"]
    assert case[0].text == "3 earlier jobs; limits begin at 5"
    shown, _ = tables(comparison_markdown(compared(), [result]))
    assert shown[0][1][1] == "passed; 3 earlier jobs; limits begin at 5"


# --- Markdown ---------------------------------------------------------------------------------


def tables(markdown: str) -> tuple[list[list[list[str]]], set[str]]:
    """Render Markdown as GitHub does; return every table's cells, and the markup there is."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    found: list[list[list[str]]] = []
    kinds = set()
    for token in tokens:
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline":
            children = token.children or []
            kinds |= {child.type for child in children} | {
                child.content for child in children if child.type == "html_inline"
            }
            if token.level > 2 and found:
                text = "".join(c.content for c in children).replace("\N{WORD JOINER}", "")
                found[-1][-1].append(text)
        kinds.add(token.type)
    return found, kinds


def test_the_comment_by_hand() -> None:
    text = comparison_markdown(compared(), checked(compared()))
    assert text.startswith("## latentscale compare\n\n- job: nightly (nightly-1a2b3c4d)")
    assert "❌ 2 of 3 gates failed." in text
    [gates, summary, scores], _ = tables(text)
    assert gates[0] == ["gate", "result"]
    # What the terminal says, with the same meaning of ±.
    said = [summarise_score(score) for score in headline_scores(compared())]
    assert summary == [["score", "job", "baseline", "change", ""]] + [
        [text.strip() for text in row.values()] for row in said
    ]
    assert text.index("<details>") < text.index("| measure | score |") < text.index("</details>")
    assert gates[1] == ["measure=vendi max_drop=0.1", "passed"]
    assert gates[2][1] == (
        "failed:<br>geomca recall (pair) is 4, below the min of 4.5<br>"
        "geomca recall (pair) fell by 20 %, from 5 to 4; max_drop allows 10 %"
    )
    assert scores[0] == [
        *("measure", "score", "of", "job", "baseline", "difference", "relative", "verdict"),
    ]
    assert scores[1:] == [
        [
            *("vendi", "rbf, order 1", "corpus", "12.0 [11.5, 12.5]", "10.00 [9.75, 10.25]"),
            *("+2.0", "+20 %", "significant"),
        ],
        ["vendi", "rbf, order 2", "corpus", "0 ± 0", "0 ± 0", "0", "", "within brackets"],
        [
            *("geomca", "recall", "pair", "4 ± 0", "5 ± 0", "-1", "-20 %"),
            "beyond brackets, sampling error unknown",
        ],
        ["magnitude", "area", "corpus", "none", "3 ± 0", "", "", "job: all rows are the same"],
        ["toy", "spread (label new)", "corpus", "1.5 ± 0", "", "", "", "only in the job"],
        ["toy", "spread (label old)", "corpus", "", "2.5 ± 0", "", "", "only in the baseline"],
    ]
    assert text.rstrip().splitlines()[-1].startswith("1 of 4 scores differs beyond the brackets")
    assert "✅ 1 of 1 gates passed." in comparison_markdown(
        compared(), checked(compared(), Gate(measure="vendi", min=-1))
    )
    assert "gates" not in comparison_markdown(compared())


def test_hostile_names_stay_in_their_cells() -> None:
    found = hostile()
    text = comparison_markdown(found, checked(found, Gate(measure=HOSTILE, max=1.0)))
    [gates, *_, scores], kinds = tables(text)
    assert {len(line) for line in gates} == {2}
    assert {len(line) for line in scores} == {8}
    assert gates[1][0] == f"measure={SHOWN} max=1"
    names = [line[1] for line in scores[1:]]
    assert f"spread (label {SHOWN})" in names
    assert f"{SHOWN}, order {SHOWN}" in names
    assert not kinds & {"code_inline", "em_open", "strong_open", "link_open", "image"}
    assert {kind for kind in kinds if kind.startswith("<")} <= {"<br>"}
    assert "@team" not in text
    assert "#12" not in text


# --- tables -----------------------------------------------------------------------------------


def printed(
    found: Comparison,
    gates: list[GateResult] | None = None,
    *,
    width: int = 40,
    every_score: bool = True,
    **terminal: Any,
) -> str:
    output = io.StringIO()
    console = Console(file=output, width=width, color_system=None, **terminal)
    print_comparison(found, gates, console, every_score=every_score)
    return output.getvalue()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"better": "high"}, "significant, better"),
        ({"better": "low"}, "significant, worse"),
        ({"better": "none"}, "significant"),
        ({"measure": "vendi", "better": "high"}, "significant"),  # more diverse is no better
    ],
)
def test_a_change_is_for_the_better_or_for_the_worse(fields: dict[str, Any], said: str) -> None:
    ours, theirs = (row(value, sampling_error=0.1, **fields) for value in (3.0, 1.0))
    assert cells(printed(comparison([ours], [theirs])), "significant")[-1] == said


@pytest.mark.parametrize("fingerprint", ["f00d", "beef"])
def test_scores_of_a_reference_that_both_jobs_have_are_not_in_the_summary(fingerprint: str) -> None:
    rows = [row(2.0), row(3.0, of="reference")]
    baseline = job(*rows, name="release", reference=(50, fingerprint))
    found = compare(job(*rows, reference=(50, "f00d")), baseline)
    same = fingerprint == "f00d"
    text = printed(found, every_score=False)
    assert ("reference the same rows in both" in text) is same
    assert ("(reference)" in text) is not same
    assert ("1 more score: --all" in text) is same
    assert "reference" in cells(printed(found), "toy", "reference")


def test_what_a_job_ingested_is_named_by_its_source() -> None:
    document = results([row(2.0)])
    place = {"uri": f"/jobs/corpora/{32 * '0'}.zarr", "source": "/data/new.npy and 3 more"}
    document["corpora"]["corpus"] |= place
    new = finished_job(document, SETTINGS, "jobs/new")
    text = printed(compare(new, job(row(2.0), name="release")))
    assert "nightly (nightly-1a2b3c4d) of /data/new.npy and 3 more · jobs/new" in text


def cells(text: str, *words: str) -> list[str]:
    lines = [line for line in text.splitlines() if all(word in line for word in words)]
    assert len(lines) == 1, lines
    return [cell.strip() for cell in lines[0].split("  ") if cell.strip()]


def test_plain_lines_hold_both_brackets() -> None:
    text = printed(compared(), checked(compared()))
    assert text.splitlines()[0] == "job       nightly (nightly-1a2b3c4d) · jobs/nightly-1a2b3c4d"
    assert cells(text, "rbf, order 1") == [
        *("vendi", "rbf, order 1", "corpus", "12.0 [11.5, 12.5]", "10.00 [9.75, 10.25]"),
        *("+2.0", "+20 %", "significant"),
    ]
    assert cells(text, "area") == [
        *("magnitude", "area", "corpus", "none", "3 ± 0", "job: all rows are the same"),
    ]
    assert text.splitlines()[-3:] == [
        "passed     measure=vendi max_drop=0.1 (2 scores)",
        "FAILED     measure=geomca max_drop=0.1 min=4.5 (1 score)",
        "FAILED     measure=magnitude min=1 (1 score)",
    ]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_terminal_gets_a_table_that_fits(width: int) -> None:
    text = printed(compared(), width=width, force_terminal=True)
    table = [line for line in text.splitlines() if not line.startswith(("job", "base", "1 of"))]
    assert max(map(len, table)) <= width
    for part in ("[11.5, 12.5]", "[9.75, 10.25]", "+2.0", "+20 %", "significant"):
        assert part in text
    assert ("measure " in text) == (width == 160)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_new_measure_appears_by_itself(terminal: bool) -> None:
    toy = {"measure": "toy", "score": "purr", "label": "cats", "scale": 0.5}
    found = comparison([row(2.0, **toy)], [row(1.0, **toy)])
    text = printed(found, width=140, force_terminal=terminal)
    assert cells(text, "purr")[:7] == [
        *("toy", "purr (scale 0.5, label cats)", "corpus", "2 ± 0", "1 ± 0", "+1", "+100 %"),
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_names_cannot_steer_the_terminal(terminal: bool) -> None:
    found = comparison(
        [row(1.0, label="[bold]x[/bold]\x1b]0;title\x07")], [row(1.0, label="\x1b[31m")]
    )
    text = printed(found, width=160, force_terminal=terminal)
    assert "[bold]x[/bold]�]0;title�" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_what_is_unlike_is_said_and_marked() -> None:
    jobs = job(row(1.0)), job(row(1.0), n=7, settings=None, name="release")
    text = printed(compare(*jobs, allow_incomparable=True))
    assert "within brackets (incomparable)" in text
    text = printed(compare(*jobs))
    assert "not comparable" in text
    assert "Unlike: n of the corpus is 100 here and 7 in the baseline (toy depends on it)." in text
    assert "Note: jobs/release-1a2b3c4d holds no config.json: the settings" in text
