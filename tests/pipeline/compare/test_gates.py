"""Gates: each limit by hand, what is selected, what is refused, and every line that is read."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from latentscale_pipeline.compare.gate_checks import GateResult, check_gates
from latentscale_pipeline.compare.gates import Gate, read_gates
from latentscale_pipeline.compare.jobs import compare
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.report.control_chart import JobOfSeries
from latentscale_pipeline.results.model import Score
from tests.support.comparisons import Row, comparison, job, row

SEEDED = settings(deadline=None, derandomize=True)


def gates(*limits: dict[str, Any]) -> tuple[Gate, ...]:
    return read_gates(yaml.safe_dump({"gates": list(limits)}), "gates.yaml")


def check(ours: list[Row], theirs: list[Row], *limits: dict[str, Any]) -> list[GateResult]:
    return list(check_gates(gates(*limits), comparison(ours, theirs), "gates.yaml"))


def verdict(ours: Row, theirs: Row, **limits: Any) -> str:
    """Return the line of one gate on one score; empty when it passes."""
    [result] = check([ours], [theirs], {"measure": "toy", **limits})
    assert result.passed == (result.message == "")
    return result.message


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "limits", "line"),
    [
        (9.0, 10.0, {"max_drop": 0.1}, ""),
        (0.99, 1.1, {"max_drop": 0.1}, ""),  # 0.10000000000000009 in floating point
        (
            8.9,
            10.0,
            {"max_drop": 0.1},
            "toy spread (corpus) fell by 11 %, from 10 to 8.9; max_drop allows 10 %",
        ),
        (
            0.8999,
            1.0,
            {"max_drop": 0.1},
            "toy spread (corpus) fell by 10.01 %, from 1 to 0.8999; max_drop allows 10 %",
        ),
        (
            0.8999999,
            1.0,
            {"max_drop": 0.1},
            "toy spread (corpus) fell by 10.00001 %, from 1 to 0.9; max_drop allows 10 %",
        ),
        (20.0, 10.0, {"max_drop": 0.1}, ""),
        (9.0, 10.0, {"max_rise": 0.0}, ""),
        (
            25.0,
            10.0,
            {"max_rise": 1.25},
            "toy spread (corpus) rose by 150 %, from 10 to 25; max_rise allows 125 %",
        ),
        # A share is of the absolute value: from -10 to -12 is a drop of 20 %.
        (
            -12.0,
            -10.0,
            {"max_drop": 0.1},
            "toy spread (corpus) fell by 20 %, from -10 to -12; max_drop allows 10 %",
        ),
        (-12.0, -10.0, {"max_rise": 0.1}, ""),
        (7.5, 10.0, {"max_drop": 2.5, "absolute": True}, ""),
        (
            7.25,
            10.0,
            {"max_drop": 2.5, "absolute": True},
            "toy spread (corpus) fell by 2.75, from 10 to 7.25; max_drop allows 2.5",
        ),
        # From zero, no share is defined: standing still passes, anything else doesn't.
        (0.0, 0.0, {"max_drop": 0.0, "max_rise": 0.0}, ""),
        (1.0, 0.0, {"max_drop": 0.0}, ""),
        (
            1.0,
            0.0,
            {"max_rise": 5.0},
            (
                "toy spread (corpus) rose from 0 to 1; no max_rise relative to it allows that; "
                "absolute: true would count it"
            ),
        ),
        (1.0, 0.0, {"max_rise": 1.5, "absolute": True}, ""),
        (0.8, 5.0, {"min": 0.8}, ""),
        (
            0.7996,
            5.0,
            {"min": 0.8},
            "toy spread (corpus) is 0.7996, below the min of 0.8",
        ),
        (1e-4, 5.0, {"max": 1.0e-4}, ""),
        (
            1.26e-4,
            5.0,
            {"max": 1.0e-4},
            "toy spread (corpus) is 1.26e-04, above the max of 1e-04",
        ),
        (0.5, 5.0, {"min": 0.0, "max": 1.0}, ""),
    ],
)
def test_limits_by_hand(ours: float, theirs: float, limits: dict[str, Any], line: str) -> None:
    assert verdict(row(ours), row(theirs), **limits) == line


def test_the_worst_comes_first_and_the_others_are_counted() -> None:
    ours = [row(8.0, label="a"), row(5.0, label="b"), row(9.5, label="c"), row(7.0, label="d")]
    theirs = [row(10.0, label=label) for label in "abcd"]
    [result] = check(ours, theirs, {"measure": "toy", "max_drop": 0.1})
    assert [failure.score.score.label for failure in result.failures] == ["b", "d", "a"]
    assert result.message == (
        "toy spread (label b) (corpus) fell by 50 %, from 10 to 5; max_drop allows 10 % "
        "(also toy spread (label d) (corpus); toy spread (label a) (corpus))"
    )
    assert len(result.selected) == 4


KNOWN = {"sampling_error": 1.0}


@pytest.mark.parametrize(
    ("ours", "theirs", "limits", "passes"),
    [
        # A drop of 30 % within 1.96 errors of 1.414 each way doesn't count.
        (row(7.3, **KNOWN), row(10.0, **KNOWN), {"max_drop": 0.1}, True),
        (row(7.2, **KNOWN), row(10.0, **KNOWN), {"max_drop": 0.1}, False),
        (row(7.2, 0.1, **KNOWN), row(10.0, **KNOWN), {"max_drop": 0.1}, True),
        # A significant one that is allowed is allowed.
        (row(7.2, **KNOWN), row(10.0, **KNOWN), {"max_drop": 0.3}, True),
        # min: the whole bracket and 1.96 errors below it; the baseline has no say.
        (row(7.0, 1.0, **KNOWN), row(10.0), {"min": 9.9}, True),
        (row(7.0, 1.0, **KNOWN), row(10.0), {"min": 10.0}, False),
        (row(7.0, 1.0, **KNOWN), row(None, reason="none"), {"max": 4.1}, True),
        (row(7.0, 1.0, **KNOWN), row(None, reason="none"), {"max": 4.0}, False),
    ],
)
def test_significant_counts_only_what_is_beyond_the_uncertainty(
    ours: Row, theirs: Row, limits: dict[str, Any], passes: bool
) -> None:
    assert (verdict(ours, theirs, **limits, significant=True) == "") == passes
    tighter = {name: value - 1e9 if name == "max" else value for name, value in limits.items()}
    assert verdict(ours, theirs, **tighter) or limits.get("max_drop") == 0.3


@pytest.mark.parametrize(
    ("ours", "theirs", "limits", "line"),
    [
        (
            row(None, reason="fewer rows than neighbours"),
            row(1.0),
            {"min": 0.1},
            "toy spread (corpus) is null: fewer rows than neighbours",
        ),
        (
            row(None, reason="fewer rows than neighbours"),
            row(1.0),
            {"max_drop": 0.1, "significant": True},
            "toy spread (corpus) can't be compared (job: fewer rows than neighbours)",
        ),
        (
            row(1.0),
            row(None, reason="all rows are the same"),
            {"max_rise": 0.1},
            "toy spread (corpus) can't be compared (baseline: all rows are the same)",
        ),
        (row(1.0), row(None, reason="all rows are the same"), {"min": 0.5}, ""),
        (
            row(None, reason="<here>\x1b[2J"),
            row(None, reason="there"),
            {"max_drop": 0.1},
            "toy spread (corpus) can't be compared (job: <here>�[2J; baseline: there)",
        ),
    ],
)
def test_a_null_score_fails_with_its_reason(
    ours: Row, theirs: Row, limits: dict[str, Any], line: str
) -> None:
    assert verdict(ours, theirs, **limits) == line


def test_a_score_that_one_job_lacks() -> None:
    lost = [row(1.0, label="kept"), row(2.0, label="lost")]
    [result] = check(lost[:1], lost, {"measure": "toy", "min": 0.5})
    assert result.message == (
        "toy spread (label lost) (corpus) is missing: only the baseline has it"
    )
    [result] = check(lost[:1], lost, {"label": "lost", "max_drop": 0.5})
    assert result.message == (
        "toy spread (label lost) (corpus) can't be compared (job: no such score)"
    )
    [limit, drop] = check(
        lost, lost[:1], {"label": "lost", "max": 2.0}, {"label": "lost", "max_drop": 0.5}
    )
    assert limit.passed
    assert drop.message.endswith("can't be compared (baseline: no such score)")


# --- properties -------------------------------------------------------------------------------

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


@SEEDED
@given(st.lists(NUMBERS, min_size=1, max_size=5), st.floats(0, 1), st.booleans(), st.booleans())
def test_a_job_passes_every_drop_gate_against_itself(
    values: list[float], share: float, absolute: bool, significant: bool
) -> None:
    rows = [row(v, label=str(i), sampling_error=0.1) for i, v in enumerate(values)]
    limits = {"max_drop": share, "max_rise": share}
    [result] = check(
        rows,
        rows,
        {"measure": "toy", "absolute": absolute, "significant": significant, **limits},
    )
    assert result.passed
    assert len(result.selected) == len(values)


@SEEDED
@given(NUMBERS, NUMBERS, st.floats(0, 1), st.sampled_from(["max_drop", "max_rise"]))
def test_shares_against_exact_arithmetic(
    ours: float, theirs: float, share: float, name: str
) -> None:
    change = Fraction(ours) - Fraction(theirs)
    beyond = (-change if name == "max_drop" else change) - Fraction(share) * abs(Fraction(theirs))
    # Next to the limit rounding decides, which is what the tolerance is for.
    assume(abs(beyond) > 1e-9 * max(abs(ours), abs(theirs), 1e-300))
    assert (verdict(row(ours), row(theirs), **{name: share}) == "") == (beyond < 0)


@SEEDED
@given(NUMBERS, NUMBERS)
def test_bounds_are_bounds(value: float, limit: float) -> None:
    theirs = row(0.0)
    assume(abs(value - limit) > 1e-9 * max(abs(value), abs(limit)))
    assert (verdict(row(value), theirs, min=limit) == "") == (value > limit)
    assert (verdict(row(value), theirs, max=limit) == "") == (value < limit)


# --- selection --------------------------------------------------------------------------------

ROWS = [
    row(1.0, measure="heat", score="imd", of="pair", better="low", unit="trace per vertex"),
    row(2.0, measure="heat", score="heat_trace", scale=0.9910109002566694, better="none"),
    row(3.0, measure="vendi", score="vendi", kernel="cosine", order="1"),
    row(4.0, measure="vendi", score="vendi", kernel="cosine", order="inf"),
    row(5.0, measure="vendi", score="vendi", kernel="rbf", order="0.5"),
    row(
        6.0, measure="vendi", score="vendi", of="reference", kernel="rbf 2.0", order="1", label="7"
    ),
]


@pytest.mark.parametrize(
    ("selector", "values"),
    [
        ({"measure": "heat"}, [1, 2]),
        ({"better": "high"}, [3, 4, 5, 6]),
        ({"unit": "trace per vertex"}, [1]),
        ({"of": "pair"}, [1]),
        ({"score": "vendi", "of": "corpus"}, [3, 4, 5]),
        ({"kernel": "rbf"}, [5, 6]),
        ({"kernel": "rbf 2.0"}, [6]),
        ({"measure": "vendi", "kernel": "cosine", "order": "1"}, [3]),
        ({"order": 1}, [3, 6]),
        ({"order": 1.0}, [3, 6]),
        ({"order": "1.0"}, [3, 6]),
        ({"order": 0.5}, [5]),
        ({"order": float("inf")}, [4]),
        ({"order": "inf"}, [4]),
        ({"scale": 0.991}, [2]),
        ({"label": 7}, [6]),
        ({"label": None}, [1, 2, 3, 4, 5]),
        ({"measure": "vendi", "order": 1, "label": None}, [3]),
        ({"kernel": None}, [1, 2]),
        ({"kernel": None, "scale": None}, [1]),
    ],
)
def test_a_selector_over_the_fields_of_scores(selector: dict[str, Any], values: list[int]) -> None:
    [result] = check(ROWS, ROWS, {**selector, "max": 10})
    assert [found.job and found.job.value for found in result.selected] == values


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ({"measure": "vendy"}, "none has measure vendy; did you mean vendi?"),
        ({"measure": "fid"}, "none has measure fid; it can be heat, vendi"),
        (
            {"measure": "vendi", "kernel": "cosin"},
            "none with measure vendi has kernel cosin; did you mean cosine?",
        ),
        (
            {"measure": "vendi", "kernel": "cosine", "order": 2},
            "none with measure vendi and kernel cosine has order 2; it can be 1, inf",
        ),
        (
            {"measure": "heat", "kernel": "rbf"},
            "none with measure heat has kernel rbf; they have no kernel, leave it out",
        ),
        (
            {"score": "heat_trace", "scale": 1.0},
            "none with score heat_trace has scale 1; the nearest is 0.991011",
        ),
        ({"measure": "heat", "of": "reference"}, "none with measure heat has of reference; it can"),
        ({"of": "reference", "label": None}, "none with of reference has label null; it can be 7"),
    ],
)
def test_a_gate_that_selects_nothing_names_the_nearest(
    selector: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        check(ROWS, ROWS, {"measure": "vendi", "min": 0}, {**selector, "min": 0})
    assert str(caught.value).startswith(f"gates.yaml: gates.1 selects no score: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ours", "theirs", "limits", "where"),
    [
        (row(1.0), row(1.0), {"max_drop": 0.5}, "in the job and in the baseline"),
        (row(1.0), row(1.0, **KNOWN), {"max_rise": 0.5}, "in the job"),
        (row(1.0, **KNOWN), row(1.0), {"max_drop": 0.5}, "in the baseline"),
        (row(1.0), row(1.0, **KNOWN), {"min": 0.5}, "in the job"),
        (row(1.0), row(None, reason="none"), {"min": 0.5, "max_drop": 0.5}, "in the job"),
    ],
)
def test_significance_is_refused_where_a_sampling_error_is_unknown(
    ours: Row, theirs: Row, limits: dict[str, Any], where: str
) -> None:
    with pytest.raises(BadInput) as caught:
        verdict(ours, theirs, significant=True, **limits)
    assert str(caught.value) == (
        "gates.yaml: gates.0 asks for significance and the sampling error of toy spread (corpus) "
        f"is unknown {where}; leave out significant, or compare jobs that know it (replicates)"
    )


def test_a_limit_on_the_value_asks_nothing_of_a_baseline_of_another_size() -> None:
    trace = row(0.2, measure="heat", score="heat_trace", sampling_error=0.01)
    for of, rows in (("corpus", 120), ("reference", 100)):
        compared = compare(
            job({**trace, "of": of}, reference=(80, "beef")),
            job({**trace, "of": of}, name="release", n=rows, reference=(90, "dead")),
            allow_incomparable=True,
        )
        limited, changed = gates(
            {"measure": "heat", "min": 0.5, "significant": True},
            {"measure": "heat", "max_drop": 0.1, "significant": True},
        )
        [result] = check_gates([limited], compared, "gates.yaml")
        assert result.outcome == "failed"
        with pytest.raises(BadInput, match="the corpora differ in size, so that sampling errors"):
            check_gates([changed], compared, "gates.yaml")


# --- the file ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gates: [{measure: vendi, max_dorp: 0.1}]", "gates.0.max_dorp is unknown; did you mean m"),
        ("gates: [{measure: vendi, max_drop: -1}]", "gates.0.max_drop must be at least 0"),
        (
            "gates: [{measure: vendi, max_drop: 10%}]",
            "gates.0.max_drop must be a number, not '10%'",
        ),
        ("gates: [{measure: vendi, min: .nan}]", "gates.0.min must be a finite number"),
        (
            "gates: [{measure: vendi, min: 1}, {measure: vendi}]",
            "gates.1: it sets no limit; name one of max_drop, max_rise, min, max, p_below",
        ),
        ("gates: [{max_drop: 0.1}]", "gates.0: it selects no score; name one of measure, of, sco"),
        (
            "gates: [{measure: vendi, max_drop: 10}]",
            (
                "gates.0: a drop is a share of the baseline and max_drop 10 is more than all of "
                "it; write 0.1 for 10 %, or add absolute: true"
            ),
        ),
        ("gates: [{measure: a, min: 1, absolute: true}]", "gates.0: absolute says how max_drop"),
        ("gates: [{measure: a, min: 2, max: 1}]", "gates.0: min is above max"),
        ("gates: [{measure: a, label: no, min: 1}]", "gates.0.label: false isn't text in YAML; w"),
        ("gates: [{label: 1.10, min: 1}]", "gates.0.label: 1.1 is a number, which keeps no last"),
        ("gates: [{drift: }]", "gates.0: drift is empty; write drift: {} for the usual limits"),
        ("gates: [{measure: a, p_below: }]", "gates.0: p_below is empty; write a number such as"),
        ("gates: [{measure: [a], min: 1}]", "gates.0.measure must be text"),
        ("gates: [{of: both, min: 1}]", "gates.0.of must be 'corpus', 'reference' or 'pair'"),
        ("gates: [vendi]", "gates.0: a gate is a mapping such as score: recall"),
        ("gates: []", "no gates here; write a list such as gates: [{score"),
        ("gates: {measure: vendi}", "no gates here"),
        ("- measure: vendi", "no gates here"),
        ("", "no gates here"),
        ("gate: []", "gate is unknown; it can be gates"),
        ("gates: [", "not valid YAML: line 1"),
        ("gates: 2026-13-45", "not valid YAML: month must be in 1..12"),
    ],
)
def test_mistakes_in_the_file_are_named(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_gates(text, "gates.yaml")
    assert str(caught.value).startswith(f"gates.yaml: {message}")
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_named_at_once() -> None:
    text = "gates: [{measure: a, kernl: b, max: c}, vendi, {measure: a, min: 1}, {measure: a}]"
    with pytest.raises(BadInput) as caught:
        read_gates(text, "gates.yaml")
    first, *mistakes = str(caught.value).splitlines()
    assert first == "gates.yaml: 4 mistakes:"
    known = ("gates.0.kernl is unknown", "gates.0.max must be", "gates.1: a gate", "gates.3: it")
    assert all(line.startswith(f"  {begin}") for line, begin in zip(mistakes, known, strict=True))


def test_a_gate_is_written_as_the_file_writes_it() -> None:
    [gate] = gates({"measure": "vendi", "order": 1, "max_drop": 0.1, "significant": True})
    assert str(gate) == "measure=vendi order=1 max_drop=0.1 significant=true"
    [gate] = gates({"max": 2.0, "label": None, "kernel": "rbf", "severity": "fail"})
    assert str(gate) == "kernel=rbf label=null max=2"
    assert gate.fields == {"kernel": "rbf", "label": None, "max": 2.0}


# --- severity ---------------------------------------------------------------------------------


def test_a_violated_gate_that_only_warns_passes_and_says_so() -> None:
    low = [row(1.0)]
    warned, failed, passed = check(
        low,
        low,
        {"measure": "toy", "min": 2, "severity": "warn"},
        {"measure": "toy", "min": 2},
        {"measure": "toy", "min": 0, "severity": "warn"},
    )
    assert [each.outcome for each in (warned, failed, passed)] == ["warned", "failed", "passed"]
    assert [each.passed for each in (warned, failed, passed)] == [True, False, True]
    assert warned.message == failed.message == "toy spread (corpus) is 1, below the min of 2"


# --- against the reference ------------------------------------------------------------------


def expected(p: float) -> dict[str, float]:
    return {
        "rows": 300,
        "found": 12.0,
        "centre": 9.0,
        "lower": 8.0,
        "upper": 10.0,
        "z": 3.0,
        "p": p,
        "smallest_found": 1.0,
    }


def test_a_score_that_differs_from_the_reference_fails() -> None:
    ours = [
        row(12.5, expected=expected(0.004)),
        row(3.0, score="other", expected=expected(0.03)),
        row(4.0, of="reference"),
    ]
    [every] = check(ours, ours, {"p_below": 0.01})
    assert every.message == (
        "toy spread (corpus) is 12.0, where 8.0 to 10.0 is expected at 300 rows (p 0.008); "
        "p_below allows 0.01"
    )
    # Of two p-values Holm's method doubles the smaller one, and leaves the larger as it is.
    assert check(ours, ours, {"score": "other", "p_below": 0.031})[0].failures
    assert not check(ours, ours, {"score": "other", "p_below": 0.03})[0].failures
    assert len(check(ours, ours, {"p_below": 0.031})[0].failures) == 2
    assert len(check(ours, ours, {"p_below": 0.0301})[0].failures) == 2
    assert len(check(ours, ours, {"p_below": 0.03})[0].failures) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "toy spread (corpus) has no expected range: the job has no samples of it"),
        ({"expected_reason": "few rows"}, "toy spread (corpus) has no expected range: few rows"),
        ({"of": "reference"}, "no selected score is compared with a reference or baseline"),
    ],
)
def test_a_gate_that_cannot_fail_is_refused(fields: dict[str, str], why: str) -> None:
    ours = [row(12.5, **fields)]
    with pytest.raises(BadInput) as refused:
        check(ours, ours, {"p_below": 0.01})
    assert str(refused.value) == f"gates.yaml: gates.0 has p_below, and {why}"


def test_a_score_that_is_missing_or_null_fails() -> None:
    theirs = [row(12.5, expected=expected(0.5)), row(3.0, score="other", expected=expected(0.5))]
    ours = [row(None, reason="no rows"), theirs[1]]
    [result] = check(ours, theirs, {"p_below": 0.01})
    assert result.message == "toy spread (corpus): it is null: no rows"
    [result] = check(ours[1:], theirs, {"p_below": 0.01})
    assert result.message == "toy spread (corpus): only the baseline has it"


def test_other_limits_need_a_selection_beside_it() -> None:
    with pytest.raises(BadInput, match="only p_below and drift can do without a selection; name"):
        gates({"p_below": 0.01, "min": 3})


def test_drift_is_judged_by_earlier_jobs() -> None:
    values = np.random.default_rng(3).normal(10.0, 0.1, size=16)
    earlier = [JobOfSeries(100, None, [Score(**row(float(value)))]) for value in values]
    [gate] = gates({"measure": "toy", "drift": {"window": 14}})
    assert str(gate) == "measure=toy drift={window: 14, sigmas: 3}"

    def outcome(value: float, before: Any, measures: Any = None) -> Any:
        ours = job(row(value), settings={"measures": measures or {}})
        [result] = check_gates([gate], compare(ours, ours), "gates.yaml", before)
        return result

    usual = outcome(10.05, earlier)
    assert (usual.passed, usual.remark) == (True, "14 earlier jobs")
    drifted = outcome(11.0, earlier)
    assert not drifted.passed
    assert drifted.message.startswith(
        "toy spread (corpus) is 11.00, where the 14 jobs before put it between 9."
    )
    few = outcome(99.0, earlier[:3])
    assert (few.passed, few.remark) == (True, "3 earlier jobs; limits begin at 5")
    null = [JobOfSeries(100, None, [Score(**row(None, reason="few rows"))])]
    lacking = "9 earlier jobs, none with a score to compare; limits begin at 5"
    assert outcome(99.0, null * 9).remark == lacking
    assert outcome(99.0, []).remark == "no earlier job of this name; limits begin at 5"
    lost = compare(job(row(1.0, score="other")), job(row(10.0)))
    [gate_on_lost] = gates({"score": "spread", "drift": {}})
    [result] = check_gates([gate_on_lost], lost, "gates.yaml", earlier)
    assert result.message == "toy spread (corpus) is missing"
    # A corpus that grew can't be judged by its scores of all rows.
    grown = [JobOfSeries(99, None, each.scores) for each in earlier]
    unlike = (
        "no limits for toy spread (corpus): fewer than 5 earlier jobs have as many rows and "
        "dimensions, the same reference, the same settings, and weights for the same corpora"
    )
    assert outcome(99.0, grown).remark == unlike
    # Nor is one of other settings; those that only one version knows don't count.
    ours = {"toy": {"within": 0.05, "new": True}}
    for theirs, remark in (({"within": 0.5}, unlike), ({"within": 0.05}, "14 earlier jobs")):
        others = [replace(each, settings={"toy": theirs}) for each in earlier]
        assert outcome(10.0, others, ours).remark == remark
    with pytest.raises(BadInput, match=r"gates\.0 has drift, which needs a history; name one \("):
        outcome(10.0, None)


def test_drift_of_many_scores_has_one_false_alarm_rate() -> None:
    """Alone it selects the headline scores; the limits widen with their number."""

    def scores(value: float) -> list[Row]:
        vendi = {"measure": "vendi", "score": "vendi", "kernel": "cosine"}
        return [row(value, **vendi, order=order) for order in ("0.1", "0.5", "1", "inf")]

    values = np.random.default_rng(4).normal(10.0, 0.1, size=14)
    earlier = [
        JobOfSeries(100, None, [Score(**own) for own in scores(float(value))]) for value in values
    ]
    spread = float(values.std(ddof=1)) * math.sqrt(1 + 1 / 14)
    for selected, k in (({}, 3), ({"order": 1}, 1)):
        [gate] = gates({**selected, "drift": {}})
        rate = math.erfc(3 / math.sqrt(2)) / k
        reach = float(stats.t.ppf(1 - rate / 2, 13)) * spread
        for share, failing in ((0.99, 0), (1.01, k)):
            ours = job(*scores(float(values.mean()) + share * reach))
            [result] = check_gates([gate], compare(ours, ours), "gates.yaml", earlier)
            assert len(result.failures) == failing


def test_a_score_that_only_the_baseline_has_fails_and_the_other_gates_are_checked() -> None:
    ours = [row(3.0, measure="other", expected=expected(0.5))]
    theirs = [*ours, row(12.5, expected=expected(0.004))]
    toy, other = check(
        ours, theirs, {"measure": "toy", "p_below": 0.01}, {"measure": "other", "p_below": 0.01}
    )
    assert toy.message == "toy spread (corpus): only the baseline has it"
    assert other.passed
    with pytest.raises(BadInput, match=r"gates\.0 selects no score: none has measure third"):
        check(ours, theirs, {"measure": "third", "p_below": 0.01})
