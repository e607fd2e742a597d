"""The verdict of a job, in words."""

import io
import json
import math

import pytest
from rich.console import Console

from latentscale_pipeline.report import FORMATS, render_report
from latentscale_pipeline.report.job import job_report
from latentscale_pipeline.report.terminal_summary import print_summary
from latentscale_pipeline.report.verdict import clean_commands, distance, format_verdict, judge
from latentscale_pipeline.results.model import ExpectedRange, Score
from latentscale_pipeline.views.scores import format_p, format_range
from tests.support.report_documents import HOSTILE, judged, with_rows
from tests.support.results_documents import example_results, read


def expected(found: float, lower: float, upper: float, p: float, **fields: float) -> ExpectedRange:
    usual = {"rows": 400, "z": 0.0, "p_adjusted": min(1.0, 3 * p), "smallest_found": 2.0}
    usual["centre"] = (lower + upper) / 2
    return ExpectedRange(found=found, lower=lower, upper=upper, p=p, **(usual | fields))


def score(measure: str, name: str, of: str = "corpus", **fields: object) -> Score:
    numbers = {"value": 1.0, "lower": 1.0, "upper": 1.0, "bounds": "exact"}
    return Score(measure=measure, of=of, score=name, **numbers, **fields)


AREA = score("magnitude", "area", expected=expected(2743.7, 2732.0, 2758.0, 0.7))
VENDI = score(
    *("vendi", "vendi"),
    kernel="cosine",
    order="1",
    expected=expected(147.1, 145.5, 151.6, 0.2, smallest_found=5.9),
)
RECALL = score("geomca", "recall_rows", "pair", expected=expected(0.94, 0.922, 0.999, 0.5))


def test_no_difference_is_found() -> None:
    verdict = judge([AREA, VENDI, RECALL], compares=True)
    assert verdict.value == "no_difference_found"
    assert verdict.compared == 3
    assert verdict.reason == (
        "All 3 headline scores are where a fresh sample of the reference's source would put them. "
        "The least usual: Vendi score, cosine, order 1 is 147.1 at 400 rows, where 145.5 to 151.6 "
        "is expected (p = 0.20; 0.60, corrected for 3 scores)."
    )
    assert verdict.also == (
        "A change of MagArea by 0.073 % or of Vendi score, cosine, order 1 by 4 % would have been "
        "found four times in five."
    )


@pytest.mark.parametrize(
    ("outside", "said"),
    [
        (1, "1 of them lies outside its own 95 % range, where chance puts 0.5 on average."),
        (
            2,
            (
                "2 of them lie outside their own 95 % range, where chance puts 0.5 on average; "
                "scores are related, so this may be chance too, and more rows would tell."
            ),
        ),
    ],
)
def test_scores_outside_their_own_range_are_counted(outside: int, said: str) -> None:
    scores = [
        score(
            *("magnitude", "area"),
            expected=expected(5.0, 4.0, 4.9, 0.03, p_adjusted=0.3)
            if place < outside
            else expected(4.5, 4.0, 5.0, 0.5, p_adjusted=1.0),
        )
        for place in range(10)
    ]
    verdict = judge(scores, compares=True)
    assert verdict.value == "no_difference_found"
    assert verdict.reason.startswith(
        "None of 10 headline scores differs from the reference by more than chance. The least "
        "usual: MagArea is 5.00 at 400 rows, where 4.00 to 4.90 is expected "
        "(p = 0.03; 0.30, corrected for 10 scores). "
    )
    assert verdict.reason.endswith(said)


def test_the_strongest_evidence_is_named_first() -> None:
    area = score("magnitude", "area", expected=expected(2647.0, 2732.0, 2758.0, 1e-5))
    recall = score("geomca", "recall_rows", "pair", expected=expected(0.90, 0.922, 0.999, 0.002))
    verdict = judge([VENDI, recall, area], compares=True)
    assert format_verdict(verdict) == (
        "Differs from the reference",
        [
            (
                "MagArea is 2,647 at 400 rows, where 2,732 to 2,758 is expected (p < 0.001, "
                "corrected for 3 scores)."
            ),
            "Lower than expected: GeomCA recall in rows. The other 1 shows no difference.",
        ],
    )


def test_counts_of_rows_come_first_and_unusual_rows_arent_diversity() -> None:
    area = score("magnitude", "area", better="high", expected=expected(9.0, 4.0, 5.0, 1e-9))
    low = expected(0.7, 0.92, 0.99, 1e-8)
    recall = score("geomca", "recall_rows", "pair", expected=low)
    many = expected(311 / 3000, 1 / 3000, 23 / 3000, 1e-5, rows=3000)
    leaks = score("duplicates", "leaks", "pair", unit="share of rows", better="low", expected=many)
    leaks = leaks.model_copy(update={"value": 311 / 3000})
    outliers = leaks.model_copy(update={"score": "outliers"})
    verdict = judge([recall, area, outliers], compares=True)
    assert verdict.also is not None
    assert verdict.also.startswith(
        "It is more diverse by 1 score of diversity, which outliers raise, too. Higher than"
    )
    verdict = judge([recall, area, leaks], compares=True)
    assert verdict.reason == (
        "Also in the reference: 311 of 3,000 rows, where 1 to 23 are expected (p < 0.001, "
        "corrected for 3 scores)."
    )
    assert verdict.also == (
        "It is more diverse, by 1 score of diversity. Higher than "
        "expected: MagArea. Lower than expected: GeomCA recall in rows."
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((9.0, 9.0, 9.0), "It is more diverse, by 3 scores of diversity. "),
        ((1.0, 4.5, 1.0), "It is less diverse, by 2 of 3 scores of diversity. "),
        ((9.0, 1.0, 9.0), "By 2 of 3 scores of diversity it is more diverse, and by 1 less. "),
        ((4.5, 4.5, 4.5), "No difference of diversity is found, by 3 scores of diversity. "),
    ],
)
def test_a_verdict_answers_whether_it_is_as_diverse(found: tuple[float, ...], said: str) -> None:
    far = expected(0.5, 0.922, 0.999, 1e-6)
    scores = [score("geomca", "recall_rows", "pair", expected=far)]
    for value in found:
        usual = expected(value, 4.0, 5.0, 0.5 if value == 4.5 else 1e-6)
        scores.append(score("magnitude", "area", better="high", expected=usual))
    verdict = judge(scores, compares=True)
    assert (verdict.also or "").startswith(said)
    # Nothing is said of diversity where no score measures it.
    assert "diverse" not in (judge(scores[:1], compares=True).also or "")


def test_one_score_without_a_range_makes_it_uncertain() -> None:
    blank = score("magnitude", "area", expected_reason="samples of weighted rows aren't measured")
    verdict = judge([VENDI, RECALL, blank], compares=True)
    assert format_verdict(verdict) == (
        "Cannot tell",
        [
            f"1 of 3 headline scores has no expected range, MagArea: {blank.expected_reason}.",
            "The other 2 show no difference.",
        ],
    )
    old = judge([score("magnitude", "area")], compares=True)
    assert old.reason.endswith("no expected range: the job was measured by an earlier version.")


def test_scores_of_labels_and_of_the_reference_take_no_part() -> None:
    far = expected(1.0, 2.0, 3.0, 1e-9)
    others = [
        score("magnitude", "area", "reference", expected=far),
        score("magnitude", "area", label="cats", expected=far),
        score("magnitude", "convergence_scale", expected=far),
    ]
    assert judge([VENDI, *others], compares=True).value == "no_difference_found"
    assert judge([VENDI, *others], compares=False).value is None


@pytest.mark.parametrize(
    ("numbers", "written"),
    [
        ((147.13, 145.52, 151.58), ("147.1", "145.5 to 151.6")),
        ((0.94, 0.89, 1.0), ("0.94", "0.89 to 1.00")),
        ((0.94, 0.9221, 0.9987), ("0.940", "0.922 to 0.999")),
        # Just outside: a digit more shows it.
        ((145.46, 145.52, 151.58), ("145.46", "145.52 to 151.58")),
        ((5.7e-6, 0.4e-6, 14.9e-6), ("0.6e-05", "0.0 to 1.5e-05")),
        ((10.1e-6, 1.6e-6, 13.1e-6), ("1.0e-05", "0.2e-05 to 1.3e-05")),
        ((1.0, 1.0, 1.0), ("1", "1")),
        ((0.99, 1.0, 1.0), ("0.99", "1")),
    ],
)
def test_ranges_have_the_digits_of_their_width(
    numbers: tuple[float, float, float], written: tuple[str, str]
) -> None:
    assert format_range(expected(*numbers, p=0.5)) == written


def test_p_has_few_digits() -> None:
    assert [format_p(p) for p in (1.0, 0.07, 0.0534, 0.0501, 0.05, 0.0431, 0.0042, 0.00009)] == [
        *("1.00", "0.07", "0.053", "0.051", "0.05", "0.04", "0.004", "<0.001"),
    ]


def test_the_report_opens_with_the_verdict_and_its_evidence() -> None:
    report = job_report(read(judged()))
    opening = report.opening
    assert opening is not None
    assert (opening.kind, opening.heading) == ("differs", "Differs from the reference")
    assert list(opening.sentences) == ["MagArea <b> is 3.", "The rest."]
    strips = {strip.title: strip for strip in opening.strips}
    # In half widths of 2 from the middle, 12.
    area, vendi = strips["MagArea"], strips["Vendi score, cosine, order 1"]
    assert (area.away, area.differs, area.p) == (-4.5, True, "<0.001")
    assert (vendi.away, vendi.differs, vendi.p) == (0.5, False, "0.40")
    assert [strip.group for strip in opening.strips] == sorted(
        (strip.group for strip in opening.strips), key=["Diversity", "Shape", "Coverage"].index
    )
    # Of three scores together, 95 % have 98.3 % each.
    assert opening.reach == pytest.approx(2.394 / 1.95996, abs=1e-3)
    page = render_report(read(judged()))
    assert "MagArea &lt;b&gt; is 3." in page
    assert page.count('class="dot"') == 3
    assert '<circle class="dot" cx="62.25%"' in page
    assert '<path class="dot" d="M6,-6 -6,0 6,6Z"/>' in page


def test_a_report_of_an_earlier_version_has_no_verdict() -> None:
    opening = job_report(read(example_results())).opening
    assert opening is not None
    assert (opening.kind, opening.heading) == ("not_compared", "Not compared")


def test_rows_of_another_kind_come_before_more_of_the_same() -> None:
    results = with_rows()
    usual = results["scores"][-1]["expected"]
    for name in ("exact leaks", "leaks", "outliers"):
        row = next(score for score in results["scores"] if score["score"] == "leaks")
        row = {**row, "score": name, "value": 0.04}
        row["expected"] = usual | {"found": 0.04, "p_adjusted": 1e-6}
        results["scores"].append(row)
    rows = [{"row": 20 + place, "other": 7, "distance": 0.0} for place in range(40)]
    far = [{"row": 100, "other": 7, "distance": 0.9}]
    named = [("exact-leaks", rows), ("leaks", rows), ("outliers", far)]
    results["rows"] = [
        {"reason": reason, "of": "corpus", "count": len(rows), "rows": rows}
        for reason, rows in named
    ]
    opening = job_report(read(results)).opening
    assert opening is not None
    assert [row.name for row in opening.look] == ["row 20", "row 100", "row 24"]


def test_the_report_says_which_rows_are_unusual_and_names_them() -> None:
    report = job_report(read(with_rows()))
    opening = report.opening
    assert opening is not None
    assert [(row.title, row.found, row.expected, row.differs) for row in opening.rows] == [
        ("Near-duplicates", "112", "0 to 4", True),
        ("Also in the reference", "1", "0 to 4", False),
    ]
    assert opening.rows_said == "One of these is not usual."
    assert opening.question == "How does it compare?"
    # What is unusually frequent comes first, and a row only once.
    assert [row.name for row in opening.look] == ["row 3", "row 4", "row 5"]
    assert {row.why for row in opening.look} == {"nearly the same as a"}
    job = report.subtitle.split()[0]
    assert opening.commands == [
        f"latentscale rows {job} --only near-duplicates",
        f"latentscale subset {job} {job}-clean.zarr --without near-duplicates",
    ]
    (rows,) = (part for part in report.sections if part.key == "rows")
    assert [len(table.rows) for table in rows.tables] == [4]
    assert [(table.caption, len(table.rows)) for table in rows.folds] == [
        ("Also in the reference: 1", 1),
        ("Nearly the same as a row that stays: 50 of 60, the most extreme first", 50),
    ]
    assert rows.folds[0].header == ["row", "why", "distance"]
    assert rows.folds[0].rows == [
        [HOSTILE, "nearly the same as row 7 of the reference", "1 × 10⁻⁴"]
    ]
    for name, write in FORMATS.items():
        assert ("<script>" in write(report)) == (name in {"html", "json"}), name
    assert "<script>alert" not in FORMATS["html"](report)


def test_the_summary_on_a_terminal_opens_with_the_verdict() -> None:
    output = io.StringIO()
    print_summary(read(judged()), Console(file=output, width=200))
    lines = output.getvalue().splitlines()
    start = lines.index("DIFFERS FROM THE REFERENCE")
    assert lines[start + 1] == "MagArea <b> is 3. The rest."
    heading = next(line for line in lines if line.endswith(" p"))
    assert heading.split() == ["found", "expected", "p"]
    [area] = [line for line in lines if line.startswith("MagArea ") and "<0.001" in line]
    assert " at 300   10.0 to 14.0  <  [  |  ]     <0.001" in area
    [vendi] = [
        line for line in lines if line.startswith("Vendi score, cosine, order 1") and "|" in line
    ]
    assert "   [  | o]     0.40" in vendi


LEAKS = score(
    *("duplicates", "leaks", "pair"),
    unit="share of rows",
    expected=expected(1.0, 0.0, 0.0125, 0.0, centre=0.001, p_adjusted=0.0),
)


def test_rows_in_both_corpora_are_no_difference_of_their_sources() -> None:
    alone = judge([VENDI, LEAKS], compares=True)
    assert alone.value == "cannot_tell"
    assert alone.reason == (
        "Also in the reference: 400 of 400 rows, where 0 to 5 are expected (p < 0.001): the two "
        "share rows, and p-values are for samples that don't."
    )
    assert alone.also == (
        "The other 1 shows no difference. Versions of one corpus share rows by design: measure "
        "each in a job without a reference and run latentscale compare NEW OLD."
    )
    exact = LEAKS.model_copy(update={"score": "exact leaks"})
    two = judge([VENDI, LEAKS, exact], compares=True)
    assert two.also is not None
    assert two.also.startswith(
        "Higher than expected: Equal to a reference row. The other 1 shows no difference. "
    )
    other = VENDI.model_copy(update={"expected": expected(160.0, 145.5, 151.6, 0.001)})
    both = judge([other, LEAKS], compares=True)
    assert both.value == "differs"
    assert both.reason.startswith("Vendi score")
    assert both.also == (
        "Higher than expected: Also in the reference. Versions of one corpus share rows by "
        "design: measure each in a job without a reference and run latentscale compare NEW OLD."
    )
    leaky = LEAKS.model_copy(
        update={"expected": expected(0.3, 0.0, 0.0125, 0.0, centre=0.001, p_adjusted=0.0)}
    )
    leaky = leaky.model_copy(update={"value": 0.3})
    some = judge([other, leaky], compares=True)
    assert some.reason.startswith("Also in the reference: 120 of 400 rows, where 0 to 5 are")
    assert some.also == "Higher than expected: Vendi score, cosine, order 1."
    alone = judge([VENDI, leaky], compares=True)
    assert alone.value == "cannot_tell"
    assert alone.also is not None
    assert alone.also.startswith(
        "The other 1 shows no difference. If they shouldn't, leave these rows out and run the job "
        "again. Versions of one corpus share rows by design: "
    )
    few = LEAKS.model_copy(
        update={"expected": expected(0.0, 0.1, 0.2, 0.001, centre=0.15, p_adjusted=0.001)}
    )
    assert judge([VENDI, few], compares=True).value == "differs"


def test_rows_that_most_of_both_have_are_not_cleaned_away() -> None:
    job = read(with_rows()).job.id

    def cleaned(found: float, score: str = "leaks") -> list[str]:
        results = read(with_rows())
        usual = expected(found, 0.0, 0.0125, 0.0, centre=0.001, p_adjusted=0.0)
        leaks = LEAKS.model_copy(update={"expected": usual, "score": score})
        return clean_commands(results.model_copy(update={"scores": [leaks]}), "jobs/a")

    assert cleaned(0.3) == [f"latentscale subset jobs/a {job}-clean.zarr --without leaks"]
    assert cleaned(0.9) == []
    assert cleaned(0.3, score="outliers") == [
        f"latentscale subset jobs/a {job}-clean.zarr --without outliers"
    ]
    assert cleaned(0.9, score="outliers") == [], "of another model all rows are far"
    assert cleaned(0.9, score="near-duplicates") == [
        f"latentscale subset jobs/a {job}-clean.zarr --without near-duplicates"
    ]
    # Nor those that are the same in both, of versions that share most.
    part = LEAKS.model_copy(
        update={
            "score": "exact-leaks",
            "expected": expected(0.4, 0.0, 0.0125, 0.0, centre=0.001, p_adjusted=0.0),
        }
    )
    results = read(with_rows())
    both = results.model_copy(update={"scores": [LEAKS, part]})
    assert clean_commands(both, "jobs/a") == []


def test_a_range_without_width_has_an_outside() -> None:
    assert distance(expected(0.02, 0.0, 0.0, 0.01)) == math.inf
    assert distance(expected(0.0, 0.0, 0.0, 1.0)) == 0.0
    assert distance(expected(3.0, 0.0, 2.0, 0.01)) == 2.0


def test_rows_already_named_do_not_hide_others_of_a_reason() -> None:
    results = with_rows()
    equal = [{"row": row, "other": 900} for row in range(4)]
    near = [{"row": row, "other": 900, "distance": 0.0} for row in range(4)]
    near += [{"row": 50, "other_id": "", "distance": 0.01}]
    results["rows"] = [
        {"reason": "exact-duplicates", "of": "corpus", "count": 4, "rows": equal},
        {"reason": "near-duplicates", "of": "corpus", "count": 5, "rows": near},
    ]
    for row in results["scores"]:
        if row["score"] == "near-duplicates":
            row["expected"] |= {"p_adjusted": 0.9}
    (section,) = (part for part in job_report(read(results)).sections if part.key == "rows")
    assert [row[0] for row in section.tables[0].rows] == [
        "row 0",
        "row 1",
        "row 2",
        "row 3",
        "row 50",
    ]
    assert section.tables[0].rows[-1][1] == "nearly the same as (an empty id)"


def test_a_job_of_rows_alone_is_not_said_to_compare_scores() -> None:
    results = with_rows()
    for row in results["scores"]:
        if row["measure"] != "duplicates":
            row.pop("expected", None)
    opening = job_report(read(results)).opening
    assert opening is not None
    assert opening.question == "How diverse is it?"
    assert "grey" not in opening.strips_said
    shown = ("duplicates", "heat")
    shape = results | {"scores": [row for row in results["scores"] if row["measure"] in shown]}
    opening = job_report(read(shape)).opening
    assert opening is not None
    assert opening.question == "What is its shape?"
    # Shares of the corpus are counted, where nothing says what is usual.
    for row in results["scores"]:
        row.pop("expected", None)
    opening = job_report(read(results)).opening
    assert opening is not None
    assert [(row.found, row.expected) for row in opening.rows] == [("112", ""), ("0.125 %", "")]
    assert opening.rows_said == "Nothing says what is usual."


def test_counts_of_random_rows_say_among_how_many() -> None:
    results = with_rows()
    for row in results["scores"]:
        if row["score"] == "near-duplicates":
            row["expected"] |= {"rows": 400}
    opening = job_report(read(results)).opening
    assert opening is not None
    assert opening.rows[0].found == "50 of 400"


def test_what_has_no_width_is_drawn_at_the_edge_and_written_as_json() -> None:
    results = with_rows()
    for row in results["scores"]:
        if row["score"] == "leaks":
            row["expected"] |= {"lower": 0.001, "upper": 0.001, "found": 0.9}
    report = job_report(read(results))
    assert report.opening is not None
    assert report.opening.rows[1].away == 10.0
    assert json.loads(FORMATS["json"](report))["opening"]["rows"][1]["away"] == 10.0


def test_a_measure_that_found_nothing_says_why() -> None:
    results = example_results()
    results["scores"] = [row for row in results["scores"] if row["measure"] != "geomca"]
    results["measures"] |= {"geomca": None, "geomca_reason": "the <b> reference has one row"}
    results["measures"] |= {"duplicates": None, "duplicates_reason": "one row"}
    results["corpora"]["corpus"] |= {"d": None}
    report = job_report(read(results))
    (section,) = (part for part in report.sections if part.key == "geomca")
    assert list(section.notes) == ["Not computed: the <b> reference has one row."]
    assert report.opening is not None
    assert report.opening.rows_said == "Not known: one row."
    assert "the &lt;b&gt; reference" in FORMATS["html"](report)


def test_a_report_opens_with_a_row_of_each_unusual_reason() -> None:
    document = with_rows()
    [leaks] = [row for row in document["scores"] if row["score"] == "leaks"]
    leaks["expected"] |= {"found": 0.02, "p": 1e-6, "p_adjusted": 1e-5}
    document["rows"][0]["rows"] = [
        {"row": 200 + place, "other": 7, "distance": 0.0001} for place in range(9)
    ]
    opening = job_report(read(document)).opening
    assert opening is not None
    assert sorted(row.name for row in opening.look[:2]) == ["row 200", "row 3"]
    assert len(opening.look) == 3
