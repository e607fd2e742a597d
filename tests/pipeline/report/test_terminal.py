"""All scores are printed with their brackets; nothing but the scores is read."""

import io
from typing import Any

import pytest
from rich.console import Console

from latentscale_pipeline.report.job import job_report
from latentscale_pipeline.report.scores import SIZED
from latentscale_pipeline.report.terminal import print_scores
from tests.support.results_documents import example_results, read, without_reference


def summary(results: dict[str, Any], *, width: int = 160, terminal: bool = False) -> str:
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=terminal, color_system=None)
    print_scores(read(results), console)
    return output.getvalue()


def line_with(text: str, *words: str) -> list[str]:
    lines = [line for line in text.splitlines() if all(word in line for word in words)]
    assert len(lines) == 1, lines
    return lines[0].split("  ")


def cells(line: list[str]) -> list[str]:
    return [cell.strip() for cell in line if cell.strip()]


def test_the_header_describes_both_corpora() -> None:
    lines = summary(example_results()).splitlines()
    assert lines[0] == "digits: high against low (digits-high-against-low-5b1f09c2)"
    assert lines[1] == (
        "corpus     896 × 64 float32 · no row repeats an earlier one · fingerprint 9f3c1a77d04b · "
        "s3://evaluation/digits-5-to-9.zarr"
    )
    assert lines[2].startswith("reference  901 × 64 float32 · no row repeats an earlier one · ")


def test_plain_lines_hold_value_bracket_bounds_and_unit() -> None:
    text = summary(example_results(), width=40)
    assert cells(line_with(text, "imd")) == [
        *("heat", "imd", "pair", "1.26e-05", "[0.97e-05, 1.55e-05]", "interval95"),
        "trace per vertex",
    ]
    assert cells(line_with(text, "vendi", "rbf, order 0.1", "corpus")) == [
        *("vendi", "rbf, order 0.1", "corpus", "575.9", "[572.5, 579.4]", "interval95"),
        "effective items",
    ]
    assert cells(line_with(text, "cosine, order 1 ", "corpus")) == [
        *("vendi", "cosine, order 1", "corpus", "4.23741", "± 0", "0.022", "exact"),
        "effective items",
    ]


def test_scores_that_corpora_of_different_sizes_do_not_share_are_marked_everywhere() -> None:
    results = example_results()
    assert "†" not in summary(results)
    results["corpora"]["corpus"]["n"] = 1800
    expected = {score.score for score in read(results).scores if score.size_dependent}
    text = summary(results)
    marked = [line for line in text.splitlines() if " †" in line]
    assert len(marked) == sum(score.size_dependent for score in read(results).scores)
    assert "†: depends on the number of rows" in text
    [numbers] = [part for part in job_report(read(results)).sections if part.key == "numbers"]
    names = [row[0] for table in numbers.tables for row in table.rows]
    assert sum(name.endswith(" †") for name in names) == len(marked)
    assert numbers.notes == [SIZED]
    assert 0 < len(expected) < len(names)


def test_every_score_has_one_line() -> None:
    results = example_results()
    rows = summary(results).splitlines()[4:-1]
    assert [row.split()[0] for row in rows] == [row["measure"] for row in results["scores"]]


def test_a_reference_free_job_has_no_reference_line() -> None:
    text = summary(without_reference(example_results()))
    assert "reference" not in text
    assert "42.4887" in text


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_terminal_gets_a_table_that_fits(width: int) -> None:
    text = summary(example_results(), width=width, terminal=True)
    table = text.splitlines()[3:-1]
    assert max(len(line) for line in table) <= width
    for number in ("1.26e-05", "[0.97e-05, 1.55e-05]", "0.421053", "[134.792, 134.825]"):
        assert number in text
    assert "effective items" in text


def test_measures_are_grouped_in_order_of_appearance() -> None:
    results = example_results()
    results["scores"] = [*results["scores"][:1], *results["scores"][-1:], *results["scores"][1:-1]]
    rows = summary(results).splitlines()[4:-1]
    measures = [row.split()[0] for row in rows]
    assert measures == sorted(measures, key=["heat", "vendi", "geomca", "magnitude"].index)


TOY = {
    "measure": "toy",
    "of": "corpus",
    "score": "spread",
    "label": "cats",
    "scale": 0.5,
    "value": 12.25,
    "lower": 12.125,
    "upper": 12.375,
    "bounds": "certified",
    "sampling_error": None,
    "unit": "paws",
    "better": "high",
}


@pytest.mark.parametrize("terminal", [False, True])
def test_a_new_measure_appears_by_itself(terminal: bool) -> None:
    results = example_results()
    needed = {key: results[key] for key in ("schema", "job", "corpora")}
    needed |= {"measures": {}, "arrays": {}}
    text = summary(needed | {"scores": [TOY]}, terminal=terminal)
    assert cells(line_with(text, "toy", "spread")) == [
        *("toy", "spread (scale 0.5, label cats)", "corpus", "12.25", "[12.12, 12.38]"),
        *("certified", "paws"),
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_missing_number_shows_its_reason(terminal: bool) -> None:
    results = example_results()
    nothing = {"value": None, "lower": None, "upper": None, "bounds": None}
    results["scores"] = [TOY | nothing | {"reason": "fewer rows than neighbours"}]
    text = summary(results, terminal=terminal)
    assert "none" in text
    assert "fewer rows than neighbours" in text


def test_an_unknown_sampling_error_is_said() -> None:
    text = summary(example_results())
    assert text.splitlines()[-1] == (
        "Of 24 of 34 scores neither the sampling error nor an expected range is known: "
        "a difference in them can't be called significant "
        "(replicates: {count, rows} measures that of heat traces and IMD)."
    )
    results = example_results()
    results["scores"] = [row | {"sampling_error": 0.1} for row in results["scores"]]
    assert "unknown" not in summary(results)
    # Samples say whether a difference is significant, too.
    samples = [{"rows": 100, "mean": 1.0, "variance": 0.1, "share": 0.2, "freedom": 9}]
    results["scores"] = [row | {"samples": samples} for row in example_results()["scores"]]
    assert "unknown" not in summary(results)


@pytest.mark.parametrize("terminal", [False, True])
def test_names_cannot_steer_the_terminal(terminal: bool) -> None:
    results = example_results()
    results["job"]["name"] = "[red]no markup[/red] \x1b[2J\x07"
    results["scores"] = [TOY | {"label": "[bold]x[/bold]\x1b]0;title\x07"}]
    text = summary(results, terminal=terminal)
    assert "[red]no markup[/red] �[2J�" in text
    assert "label [bold]x[/bold]�]0;title�" in text
    assert "\x1b" not in text
    assert "\x07" not in text
