"""The summary of a job: headline scores on one screen, corpus and reference side by side."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from latentscale_pipeline.report import terminal_summary
from latentscale_pipeline.report.terminal import print_scores
from latentscale_pipeline.report.terminal_summary import format_evidence, headlines, print_summary
from latentscale_pipeline.results.model import SHARE_OF_ROWS, ExpectedRange, Verdict
from tests.support.results_documents import example_results, read, without_reference


def summary(results: dict[str, Any]) -> list[str]:
    output = io.StringIO()
    print_summary(read(results), Console(file=output, width=40))
    return output.getvalue().splitlines()


def row(lines: list[str], title: str) -> list[str]:
    found = [line for line in lines if line.startswith(f"{title}  ")]
    assert len(found) == 1, found
    return re.split(r" {2,}", found[0])[1:]


def test_it_fits_a_screen() -> None:
    lines = summary(example_results())
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


def test_corpus_and_reference_stand_side_by_side() -> None:
    lines = summary(example_results())
    assert lines[:3] == [
        "digits-high-against-low-5b1f09c2",
        "corpus     896 × 64, no row repeats an earlier one",
        "reference  901 × 64, no row repeats an earlier one",
    ]
    assert row(lines, "Vendi score, cosine, order 1") == ["4.237 ± 0.022", "4.315 ± 0.037"]
    assert row(lines, "Intrinsic distance (IMD)") == ["1.26e-05 [0.97e-05, 1.55e-05]"]


def test_scores_that_corpora_of_other_sizes_change_are_marked() -> None:
    results = example_results()
    assert not any("†" in line for line in summary(results))
    results["corpora"]["reference"]["n"] = 1200
    for score in results["scores"]:
        score["size_dependent"] = score["score"] != "imd"
    lines = summary(results)
    marked = {line.split(" †")[0] for line in lines if " †" in line}
    assert {"MagArea", "Vendi score, cosine, order 1"} <= marked
    assert "Intrinsic distance (IMD)" not in marked
    assert "†: depends on the number of rows" in lines, "no score was measured on samples"
    usual = {"rows": 100, "found": 9.0, "centre": 2.0, "lower": 1.0, "upper": 3.0, "z": 9.0}
    usual |= {"p": 1e-6, "p_adjusted": 1e-5, "smallest_found": 1.0}
    for score in results["scores"]:
        score["expected"] = usual
    sampled = "†: depends on the number of rows; the verdict compares samples of equally many rows"
    results["verdict"] = {"value": "differs", "reason": "MagArea: 9.", "compared": 3}
    assert sampled in summary(results)
    results["verdict"] = {"value": None, "reason": "Rows are paired.", "compared": 0}
    assert "†: depends on the number of rows" in summary(results), "nothing is compared"


def test_only_scores_of_samples_say_of_how_many_rows() -> None:
    """Where corpora are compared as wholes, no number is a mean over samples."""
    results = example_results()
    results["verdict"] = {"value": "differs", "reason": "It differs.", "compared": 20}
    usual = {"rows": 896, "centre": 2.0, "lower": 1.0, "upper": 3.0, "z": 9.0}
    usual |= {"p": 1e-6, "p_adjusted": 1e-5, "smallest_found": 1.0}
    sampled = "at: rows of a sample; of several, the score is their mean"
    for score in results["scores"]:
        score["expected"] = {**usual, "found": score["value"]}
    lines = summary(results)
    assert not any(" at 896 " in line or sampled in line for line in lines)
    for score in results["scores"]:
        score["expected"] = {**usual, "rows": 100, "found": score["value"] + 0.5}
    assert any(" at 100 " in line for line in summary(results))
    assert any(line.endswith(sampled) for line in summary(results))


def test_rows_that_repeat_earlier_ones_are_counted_as_such() -> None:
    results = example_results()
    results["corpora"]["corpus"]["duplicates"] = 60
    results["corpora"]["reference"]["duplicates"] = 1
    assert summary(results)[1:3] == [
        "corpus     896 × 64, 60 rows repeat an earlier one",
        "reference  901 × 64, 1 row repeats an earlier one",
    ]


def test_every_score_that_differs_is_shown() -> None:
    results = example_results()
    first = next(score for score in results["scores"] if score["score"] == "area")
    usual = {"rows": 100, "found": 9.0, "centre": 2.0, "lower": 1.0, "upper": 3.0, "z": 9.0}
    usual |= {"p": 1e-6, "p_adjusted": 1e-5, "smallest_found": 1.0}
    results["scores"] = [{**first, "expected": usual} for _ in range(16)]
    results["scores"].append({**first, "expected": usual | {"p": 0.9, "p_adjusted": 1.0}})
    results["verdict"] = {"value": "differs", "reason": "So.", "compared": 17}
    lines = summary(results)
    assert sum("<0.001" in line for line in lines) == 16
    assert "1 further score, at least as usual" in lines


def test_a_known_sampling_error_hides_a_narrower_bracket() -> None:
    results = example_results()
    for score in results["scores"]:
        score["sampling_error"] = None
        if score["score"] == "imd":
            score |= {"value": 0.5, "lower": 0.4, "upper": 0.6, "sampling_error": 0.02}
        if score["score"] == "area" and score["of"] == "corpus":
            score |= {"value": 1234.567, "lower": 1234.5, "upper": 1234.6, "sampling_error": 3.21}
        if score["score"] == "area" and score["of"] == "reference":
            score |= {"value": 1.0, "lower": 1.0 - 2e-10, "upper": 1.0, "sampling_error": 5e-16}
    lines = summary(results)
    assert row(lines, "Intrinsic distance (IMD)") == ["0.500 ± 0.02 [0.40, 0.60]"]
    assert row(lines, "MagArea") == ["1,234.6 ± 3.2", "1.00000 ± 5e-16"]
    assert any(line.startswith("±: sampling error") for line in lines)


def test_it_says_what_is_unknown_and_what_is_hidden() -> None:
    results = example_results()
    for score in results["scores"]:
        score["sampling_error"] = None
    lines = summary(results)
    assert lines[-2] == (
        "sampling error unknown: Intrinsic distance (IMD); Heat trace (scale 1); "
        "GeomCA consistency; 7 more"
    )
    hidden = len(results["scores"]) - len(headlines(read(results).scores))
    assert lines[-1] == f"{hidden} more scores and all brackets: --all"


def test_without_a_reference_there_is_one_column() -> None:
    lines = summary(without_reference(example_results()))
    assert row(lines, "Vendi score, cosine, order 1") == ["4.237 ± 0.022"]
    assert not any("reference" in line for line in lines)
    # Alone, the corpus sets the scale up to which its area is taken.
    [area] = [line for line in lines if line.startswith("MagArea goes up to scale ")]
    assert area.endswith("(near-duplicates raise it): compare only areas up to one scale")
    assert not any(line.startswith("MagArea goes") for line in summary(example_results()))


@pytest.mark.parametrize(
    ("found", "strip"),
    [
        (5.0, "   [  o  ]   "),
        (4.05, "   [o |  ]   "),
        (5.99, "   [  | o]   "),
        (3.95, "  o[  |  ]   "),
        (6.01, "   [  |  ]o  "),
        (3.1, "o  [  |  ]   "),
        (2.9, "<  [  |  ]   "),
        (9.0, "   [  |  ]  >"),
    ],
)
def test_a_score_is_marked_beside_the_ends_of_its_range(found: float, strip: str) -> None:
    usual = ExpectedRange(
        rows=100, found=found, centre=5.0, lower=4.0, upper=6.0, z=0.0, p=0.5, smallest_found=0.1
    )  # fmt: skip
    assert terminal_summary._strip(usual) == strip


def test_shares_of_rows_are_percentages() -> None:
    results = example_results()
    share = {"measure": "duplicates", "of": "corpus", "score": "near-duplicates"}
    share["unit"] = SHARE_OF_ROWS
    for value, error, written in (
        (0.2028, 0.009, "20.28 ± 0.9 %"),
        (0.00276, 0.0016, "0.28 ± 0.16 %"),
        (0.00275, None, "0.275 %"),
        (0.0, 2.5e-4, "0 ± 0.025 %"),
    ):
        whole = share | {"value": value, "lower": value, "upper": value, "bounds": "exact"}
        results["scores"] = [whole | {"sampling_error": error}]
        assert row(summary(results), "Near-duplicates") == [written]


def test_a_missing_number_gives_its_reason() -> None:
    results = example_results()
    for score in results["scores"]:
        if score["score"] == "imd":
            score |= {"value": None, "lower": None, "upper": None, "bounds": None}
            score["reason"] = "fewer rows than neighbours"
    assert row(summary(results), "Intrinsic distance (IMD)") == ["none: fewer rows than neighbours"]


def test_a_measure_that_found_nothing_says_why() -> None:
    results = example_results()
    results["corpora"]["corpus"]["n"] = 1
    reason = "the corpus has one row, which has no other rows"
    results["measures"] |= {"duplicates": None, "duplicates_reason": reason}
    for print_results in (print_summary, print_scores):
        output = io.StringIO()
        print_results(read(results), Console(file=output, width=200))
        assert f"duplicates: not computed: {reason}" in output.getvalue().splitlines()
    assert "corpus, 1 row  " in "\n".join(summary(results))


def test_a_measure_without_headlines_shows_its_scores_of_whole_corpora() -> None:
    whole = {"measure": "toy", "of": "corpus", "score": "spread", "unit": "paws"}
    toy = whole | {"value": 12.25, "lower": 12.25, "upper": 12.25, "bounds": "exact"}
    results = example_results()
    results["scores"] = [toy, toy | {"label": "cats"}]
    lines = summary(results)
    assert row(lines, "toy: spread") == ["12.25"]
    assert lines[-1] == "1 more score and all brackets: --all"


def test_names_cannot_steer_the_terminal() -> None:
    results = example_results()
    results["job"]["id"] = "[red]x[/red] \x1b[2J\x07"
    assert summary(results)[0] == "[red]x[/red] �[2J�"


def test_random_rows_of_the_larger_corpus_are_said_to_be_counted() -> None:
    results = example_results()
    usual = {"rows": 504, "found": 16 / 504, "centre": 0.0, "lower": 0.0, "upper": 6 / 504}
    usual |= {"z": 4.0, "p": 1e-4, "p_adjusted": 1e-3, "smallest_found": 0.01}
    fields = {"measure": "duplicates", "of": "pair", "score": "not covered", "bounds": "exact"}
    share = dict.fromkeys(("value", "lower", "upper"), 39 / 900)
    results["scores"].append({**fields, **share, "unit": "share of rows", "expected": usual})
    [found] = [score for score in read(results).scores if score.score == "not covered"]
    verdict = Verdict(value="differs", reason="Rows are missing.")
    lines = list(format_evidence(verdict, [found]))
    assert any("16 of 504" in line for line in lines)
    assert lines[-1] == ("of: rows that were counted, some as if both corpora had as many")
    whole = found.model_copy(update=dict.fromkeys(("value", "lower", "upper"), 16 / 504))
    assert "as if both" not in "".join(format_evidence(verdict, [whole]))
