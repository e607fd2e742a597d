"""What differs between two jobs: values by hand, coverage over seeds, and what is unlike."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentscale_pipeline.compare.comparability import Mismatch
from latentscale_pipeline.compare.difference import ComparedScore, Verdict
from latentscale_pipeline.compare.jobs import SAME_ROWS, compare
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.finished_job import FinishedJob, read_job
from tests.support.comparisons import (
    SETTINGS,
    Row,
    comparison,
    job,
    results,
    row,
    with_setting,
    write_job,
)
from tests.support.results_documents import example_results, finished_job, without_reference

SEEDED = settings(deadline=None, derandomize=True)


def one(ours: Row, theirs: Row) -> ComparedScore:
    [compared] = comparison([ours], [theirs]).scores
    return compared


def test_a_difference_by_hand() -> None:
    found = one(
        row(12.0, 0.5, sampling_error=0.3),
        row(10.0, 0.25, sampling_error=0.4),
    )
    assert found.difference == 2.0
    assert found.relative == 0.2
    assert (found.lower, found.upper) == (11.5 - 10.25, 12.5 - 9.75)
    assert found.gap == 1.25
    assert found.sampling_error == 0.5
    assert found.beyond_bounds is True
    assert found.significant is True, "1.25 is 2.5 standard errors"
    assert found.verdict is Verdict.SIGNIFICANT


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "significant"),
    [
        # Brackets that overlap, or touch, never differ, whatever is known besides.
        (row(1.0, 0.2), row(1.3, 0.2), Verdict.WITHIN_BOUNDS, None),
        (row(1.0, 0.25), row(1.5, 0.25), Verdict.WITHIN_BOUNDS, None),
        (
            row(1.0, 0.2, sampling_error=0.0),
            row(1.3, 0.2, sampling_error=0.0),
            Verdict.WITHIN_BOUNDS,
            False,
        ),
        # Apart by 0.6, sampling error 0.5 and 0.3: 1.96 errors are 0.98 and 0.588.
        (
            row(2.0, 0.2, sampling_error=0.3),
            row(1.0, 0.2, sampling_error=0.4),
            Verdict.NOT_SIGNIFICANT,
            False,
        ),
        (
            row(2.0, 0.2, sampling_error=0.18),
            row(1.0, 0.2, sampling_error=0.24),
            Verdict.SIGNIFICANT,
            True,
        ),
        # One unknown sampling error is enough to leave the question open.
        (row(2.0), row(1.0), Verdict.SAMPLING_ERROR_UNKNOWN, None),
        (row(2.0, sampling_error=0.1), row(1.0), Verdict.SAMPLING_ERROR_UNKNOWN, None),
        (row(2.0), row(1.0, sampling_error=0.1), Verdict.SAMPLING_ERROR_UNKNOWN, None),
        # What another kind of machine may make of the same number is no difference.
        (row(1.0), row(1.0 + 5e-7), Verdict.WITHIN_BOUNDS, None),
        (row(1.0), row(1.0 + 5e-6), Verdict.SAMPLING_ERROR_UNKNOWN, None),
        (row(None, reason="too few rows"), row(1.0), Verdict.NOT_COMPUTED, None),
    ],
)
def test_verdicts_by_hand(
    ours: Row, theirs: Row, verdict: Verdict, significant: bool | None
) -> None:
    found = one(ours, theirs)
    assert found.verdict is verdict
    assert found.significant is significant


@pytest.mark.parametrize(("width", "least", "most"), [(0.0, 0.035, 0.065), (0.5, 0.0, 0.025)])
def test_significance_raises_a_false_alarm_in_at_most_five_percent(
    width: float, least: float, most: float
) -> None:
    """Scores of samples from one source, of whose errors 20 groups know; brackets contain them."""
    generator = np.random.default_rng(20)
    alarms, trials = 0, 2000
    for _ in range(trials):
        errors = generator.uniform(0.5, 2.0, size=2)
        truths = generator.normal(100.0, errors)
        known = errors * np.sqrt(generator.chisquare(19, size=2) / 19)
        lower, upper = generator.uniform(0.0, 2 * width, size=(2, 2))
        sides = [
            row(v, lower=v - a, upper=v + b, sampling_error=e)
            for v, a, b, e in zip(truths, lower, upper, known, strict=True)
        ]
        alarms += bool(one(*sides).significant)
    assert least <= alarms / trials <= most


def test_significance_finds_what_is_there() -> None:
    generator = np.random.default_rng(21)
    found = [
        one(
            row(float(generator.normal(104.0)), 0.2, sampling_error=1.0),
            row(float(generator.normal(100.0)), 0.2, sampling_error=0.5),
        ).significant
        for _ in range(500)
    ]
    # The gap of 3.6 is 3.22 standard errors of 1.118; seen beyond 1.96: Φ(1.26) = 0.896.
    assert np.mean(found) == pytest.approx(0.896, abs=0.04)


def test_scores_are_matched_by_all_that_names_them() -> None:
    ours = [
        row(1.0, kernel="rbf", order="1"),
        row(2.0, kernel="rbf", order="2"),
        row(3.0, of="reference"),
        row(4.0, scale=0.25),
        row(5.0, scale=0.5),
        row(6.0, label="cats"),
        row(7.0, measure="other"),
    ]
    theirs = [
        row(60.0, label="cats"),
        row(70.0, measure="another"),
        row(50.0, scale=0.5 * (1 + 1e-12)),
        row(20.0, kernel="rbf", order="2"),
        row(30.0, of="reference"),
        row(10.0, kernel="cosine", order="1"),
    ]
    compared = comparison(ours, theirs).scores
    pairs = [
        (found.job and found.job.value, found.baseline and found.baseline.value)
        for found in compared
    ]
    assert pairs == [
        *[(1.0, None), (2.0, 20.0), (3.0, 30.0), (4.0, None), (5.0, 50.0), (6.0, 60.0)],
        *[(7.0, None), (None, 70.0), (None, 10.0)],
    ]
    assert [found.verdict for found in compared if not found.shared] == (
        [Verdict.ONLY_IN_JOB] * 3 + [Verdict.ONLY_IN_BASELINE] * 2
    )
    assert compared[0].why_not == "baseline: no such score"


def test_a_kernel_of_an_earlier_version_is_the_one_that_has_a_bandwidth() -> None:
    new, old = row(2.0, kernel="rbf median"), row(1.0, kernel="rbf")
    assert one(new, old).difference == 1.0
    assert one(old, new).difference == -1.0
    of_two = comparison([new, row(3.0, kernel="rbf 0.5")], [old]).scores
    assert not any(found.shared for found in of_two), "which of the two isn't known"


def test_a_relative_difference_needs_a_baseline_other_than_zero() -> None:
    assert one(row(1.0), row(0.0)).relative is None
    assert one(row(1.0), row(-4.0)).relative == 1.25
    assert one(row(1.0), row(5e-324)).relative is None, "no number that JSON has"
    assert one(row(1.7e308), row(-1.7e308)).difference is None


VALUES = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def scores(draw: Callable[[Any], Any]) -> list[Row]:
    names = draw(st.lists(st.text(max_size=3), max_size=6, unique=True))
    found = []
    for name in names:
        known = draw(st.none() | st.floats(0.0, 1e3))
        value = draw(st.none() | VALUES)
        reason = {"reason": "no rows"} if value is None else {}
        width = draw(st.floats(0.0, 1e3))
        found.append(row(value, width, label=name, sampling_error=known, **reason))
    return found


@SEEDED
@given(scores())
def test_a_job_does_not_differ_from_itself(rows: list[Row]) -> None:
    found = comparison(rows, rows)
    assert not found.mismatches
    assert len(found.shared) == len(found.scores) == len(rows)
    for compared, original in zip(found.scores, rows, strict=True):
        if original["value"] is None:
            assert compared.verdict is Verdict.NOT_COMPUTED
            assert compared.difference is None
        else:
            assert compared.verdict is Verdict.WITHIN_BOUNDS
            assert compared.difference == 0.0
            assert not compared.significant


@SEEDED
@given(scores(), scores())
def test_swapping_two_jobs_negates_their_differences(ours: list[Row], theirs: list[Row]) -> None:
    swapped = {found.score.label: found for found in comparison(theirs, ours).scores}
    opposite = {
        Verdict.ONLY_IN_JOB: Verdict.ONLY_IN_BASELINE,
        Verdict.ONLY_IN_BASELINE: Verdict.ONLY_IN_JOB,
    }
    for found in comparison(ours, theirs).scores:
        other = swapped.pop(found.score.label)
        assert other.verdict is opposite.get(found.verdict, found.verdict)
        assert other.gap == found.gap
        assert other.sampling_error == found.sampling_error
        if found.difference is not None:
            assert other.difference == -found.difference
            assert (other.lower, other.upper) == (-found.upper, -found.lower)
            assert found.lower <= found.difference <= found.upper
    assert not swapped


@SEEDED
@given(VALUES, VALUES, st.floats(0, 10), st.floats(0, 10))
def test_brackets_are_beyond_each_other_when_no_number_is_in_both(
    a: float, b: float, width: float, other: float
) -> None:
    found = one(row(a, width), row(b, other))
    in_both = max(a - width, b - other) <= min(a + width, b + other)
    next_to_each_other = abs(a - b) <= 1e-6 * max(abs(a), abs(b))
    assert found.beyond_bounds == (not in_both and not next_to_each_other)


# --- what is unlike ---------------------------------------------------------------------------


def refusal(ours: Any, theirs: Any) -> str:
    """Return why scores are left out, which none is if told so."""
    found = compare(ours, theirs)
    left_out = [score for score in found.shared if score.left_out]
    assert all(score.difference is None and score.significant is None for score in left_out)
    assert not any(
        score.left_out for score in compare(ours, theirs, allow_incomparable=True).scores
    )
    own = [str(each) for each in found.mismatches if each.kind == "own scale"]
    return "; ".join([*found.describe_mismatches(), *own])


def none_left_out(found: Any) -> None:
    assert not any(score.left_out for score in found.scores)


def test_name_place_seed_and_corpus_may_differ() -> None:
    theirs = with_setting("seed", 7) | {"name": "other", "corpus": "s3://elsewhere"}
    found = compare(
        job(row(1.0)), job(row(1.0), settings=theirs, name="release", fingerprint="f00d")
    )
    none_left_out(found)
    assert not found.mismatches
    assert not found.notes


def test_the_distance_of_near_rows_decides_no_other_score_of_duplicates() -> None:
    names = ("exact duplicates", "near-duplicates", "covered", "exact leaks", "leaks", "outliers")
    jobs = [
        job(
            *(row(0.1, measure="duplicates", score=name) for name in names),
            settings=with_setting("measures.duplicates", {"metric": "cosine", "within": within}),
        )
        for within in (0.05, 0.1)
    ]
    left_out = {score.score.score for score in compare(*jobs).scores if score.left_out}
    assert left_out == {"near-duplicates", "covered", "leaks"}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("measures.heat.k", 7, "measures.heat.k is 7 here and 5 in the baseline; "),
        ("measures.heat.times.stop", 20.0, "measures.heat.times.stop is 20 here and 10 in"),
        ("measures.heat.metric", "cosine", "metric is cosine here and euclidean in"),
        ("measures.vendi.orders", [1.0, math.inf], 'orders is [1.0, "inf"] here and [1.0, 2.0]'),
        ("measures.heat", None, ""),
    ],
)
def test_settings_of_a_shared_measure_may_not(path: str, value: Any, message: str) -> None:
    ours = job(row(1.0), settings=with_setting(path, value))
    if not message:  # a measure that only one job has keeps nothing else from being compared
        del (ours.settings or {})["measures"]["heat"]
        none_left_out(compare(ours, job(row(1.0), name="release")))
        return
    assert message.removesuffix("; ") in refusal(ours, job(row(1.0), name="release"))


def test_a_setting_that_an_earlier_version_did_not_have_has_its_default() -> None:
    score, path = row(1.0, measure="vendi", kernel="cosine", order="1"), "measures.vendi.weights"
    theirs = job(score, name="release", weighted=True)
    none_left_out(compare(job(score, settings=with_setting(path, True), weighted=True), theirs))
    ours = job(score, settings=with_setting(path, False), weighted=True)
    assert refusal(ours, theirs) == (
        "measures.vendi.weights of the corpus is false here and true in the baseline"
    )


def test_weights_are_used_where_rows_have_some() -> None:
    score, path = row(1.0, measure="vendi", kernel="cosine", order="1"), "measures.vendi.weights"
    asked = job(score, settings=with_setting(path, True), weighted=False)
    none = job(score, settings=with_setting(path, False), name="release", weighted=False)
    none_left_out(compare(asked, none))
    weighted = job(score, name="release", weighted=True)
    assert refusal(asked, weighted) == (
        "measures.vendi.weights of the corpus is true, but no row has a weight, here and true in "
        "the baseline"
    )
    # Results of an earlier version don't say it.
    none_left_out(compare(job(score, settings=with_setting(path, True)), weighted))
    # Settings that aren't known are assumed to match.
    none_left_out(compare(job(score, settings=None, weighted=False), weighted))


@pytest.mark.parametrize(
    ("ours", "theirs", "differing"),
    [
        ((True, False), (False, True), {"corpus", "reference", "pair"}),
        ((False, True), (False, None), set()),
        ((False, True), (False, False), {"reference", "pair"}),
        ((True, True), (True, True), set()),
    ],
)
def test_each_corpus_has_weights_of_its_own(
    ours: tuple[bool, bool], theirs: tuple[bool, bool | None], differing: set[str]
) -> None:
    """A corpus with weights isn't like another because that one's reference has some."""
    kinds = {"measure": "vendi", "kernel": "cosine", "order": "1"}

    def made(name: str, weighted: bool, reference_weighted: bool | None) -> FinishedJob:
        return job(
            *(row(1.0, of=of, **kinds) for of in ("corpus", "reference", "pair")),
            row(1.0, of="corpus"),
            name=name,
            reference=None if reference_weighted is None else (50, "cafe"),
            weighted=weighted,
            reference_weighted=reference_weighted,
        )

    compared = compare(made("nightly", *ours), made("release", *theirs))
    found = {
        each.score.of
        for each in compared.scores
        if any(".weights of the " in one.what for one in each.mismatches)
    }
    assert found == differing


@pytest.mark.parametrize(
    ("scores", "path", "value"),
    [
        ({"measure": "vendi", "score": "vendi"}, "measures.vendi.influence", False),
        ({"measure": "vendi", "score": "vendi"}, "measures.vendi.orders", [1.0]),
        ({"measure": "magnitude", "score": "area"}, "measures.magnitude.distance", True),
        ({"measure": "modes", "score": "novel"}, "measures.modes.count", 9),
    ],
)
def test_settings_that_decide_no_score_may_differ(
    scores: dict[str, Any], path: str, value: Any
) -> None:
    settings_ = with_setting(path.rpartition(".")[0], {})
    ours, theirs = copy.deepcopy(settings_), settings_
    ours["measures"][scores["measure"]][path.rpartition(".")[2]] = value
    found = compare(
        job(row(1.0, **scores), settings=ours),
        job(row(1.0, **scores), settings=theirs, name="release"),
    )
    none_left_out(found)
    assert not found.mismatches
    if scores["measure"] == "vendi":
        ours["measures"]["vendi"]["truncation"], theirs["measures"]["vendi"]["truncation"] = 10, 20
        truncated = {**scores, "score": "truncated_vendi"}
        for known, message in ((scores, ""), (truncated, "measures.vendi.truncation is 10 here")):
            pair = [
                job(row(1.0, **known), settings=each, name=name)
                for each, name in ((ours, "nightly"), (theirs, "release"))
            ]
            assert refusal(*pair).startswith(message)
            assert bool(refusal(*pair)) == bool(message)
    if scores["measure"] == "magnitude":
        distance = {**scores, "score": "distance"}
        ours_, theirs_ = (
            job(row(1.0, **distance), settings=each, name=name)
            for each, name in ((ours, "nightly"), (theirs, "release"))
        )
        assert "measures.magnitude.distance is true here" in refusal(ours_, theirs_)


def test_a_section_that_one_job_has_empty_differs_as_a_whole() -> None:
    score = row(1.0, measure="heat", score="trace")
    ours, theirs = job(score, settings=with_setting("measures.heat", None)), job(score, name="r")
    assert refusal(ours, theirs).startswith("measures.heat is null here and {")


def test_of_several_kernels_the_own_one_decides() -> None:
    cosine, rbf = {"name": "cosine", "bandwidth": None}, {"name": "rbf", "bandwidth": "median"}
    wide = {"name": "rbf", "bandwidth": 9.0}
    ours = with_setting("measures.vendi.kernels", [cosine, wide, rbf])
    known = {"cosine": [cosine], "rbf median": [rbf], "rbf 9.0": [wide, cosine]}
    for kernel, theirs in known.items():
        score = row(1.0, measure="vendi", kernel=kernel, order="1")
        settings_ = with_setting("measures.vendi.kernels", theirs)
        found = compare(job(score, settings=ours), job(score, settings=settings_, name="r"))
        none_left_out(found)
        assert not found.mismatches
    # Scores of an earlier version, whose names lack the bandwidth.
    score = row(1.0, measure="vendi", kernel="rbf", order="1")
    settings_ = with_setting("measures.vendi.kernels", [wide])
    ours = with_setting("measures.vendi.kernels", [cosine, rbf])
    assert refusal(job(score, settings=ours), job(score, settings=settings_, name="r")).startswith(
        "measures.vendi.kernels is ["
    )


def test_infinity_is_the_same_setting_however_it_was_stored() -> None:
    ours = job(row(1.0), settings=with_setting("measures.vendi.orders", [math.inf]))
    theirs = job(row(1.0), settings=with_setting("measures.vendi.orders", ["inf"]))
    none_left_out(compare(ours, theirs))


def test_the_number_of_rows_may_differ_for_scores_that_do_not_depend_on_it() -> None:
    rows = [
        row(1.0, measure="heat", size_dependent=False),
        row(1.0, measure="fid", of="pair", size_dependent=False),
        row(1.0, measure="vendi", of="reference"),
    ]
    places = {"reference": (50, "ref")}
    found = compare(job(*rows, **places), job(*rows, name="release", n=101, **places))
    none_left_out(found)
    assert not found.mismatches
    rows += [row(1.0), row(1.0, measure="geomca", of="pair")]
    text = refusal(job(*rows, **places), job(*rows, name="release", n=101, **places))
    assert text == (
        "n of the corpus is 100 here and 101 in the baseline (toy, geomca depend on it)"
    )
    text = refusal(job(*rows, **places), job(*rows, name="release", reference=(51, "ref")))
    assert "n of the reference is 50 here and 51 in the baseline (vendi, geomca depend" in text


def test_the_reference_may_not_differ_for_scores_of_the_pair() -> None:
    alone = [row(1.0), row(1.0, of="reference")]
    ours, theirs = {"reference": (50, "ref")}, {"reference": (50, "other"), "name": "release"}
    none_left_out(compare(job(*alone, **ours), job(*alone, **theirs)))
    none_left_out(compare(job(*alone, **ours), job(*alone, name="release")))
    pair = [*alone, row(1.0, of="pair")]
    text = refusal(job(*pair, **ours), job(*pair, **theirs))
    assert "fingerprint of the reference is ref here and other in the baseline (toy depends" in text


def test_scores_beside_the_corpus_itself_are_not_those_beside_another() -> None:
    scores = [row(1.0, of="pair"), row(2.0)]
    one, itself = (job(*scores, fingerprint=of, reference=(100, "ref")) for of in ("c", "ref"))
    for job_, baseline in ((one, itself), (itself, one)):
        compared = {s.score.of: s for s in compare(job_, baseline).scores}
        assert compared["pair"].left_out
        assert not compared["corpus"].left_out
    assert "reference is another corpus here and the corpus itself in the baseline" in str(
        compare(one, itself).mismatches[0]
    )
    assert not any(s.left_out for s in compare(itself, itself).scores)


def scaled(
    epsilon: float | None = 0.5, cut: float = 3.0, bandwidths: tuple[float, ...] = (1.5, 2.0)
) -> dict[str, Any]:
    found = example_results()["measures"]
    entry = found["vendi"]["corpus"][0]
    entries = [{**entry, "kernel": "cosine", "bandwidth": None}]
    entries += [{**entry, "kernel": "rbf", "bandwidth": bandwidth} for bandwidth in bandwidths]
    function = found["magnitude"]["corpus"]
    return {
        "geomca": None if epsilon is None else {**found["geomca"], "epsilon": epsilon},
        "magnitude": {"corpus": {**function, "scales": [0.0, cut / 2, cut]}, "difference": None},
        "vendi": {"corpus": entries},
    }


def scaled_jobs(
    ours: dict[str, Any],
    theirs: dict[str, Any],
    scales_from: str = "auto",
    print_: str = "c0ffee",
    weights: str | None = None,
) -> tuple[Any, Any]:
    settings_ = {**SETTINGS, "scales_from": scales_from}
    baseline = weights and "c0de"
    return (
        job(row(1.0), measures=ours, settings=settings_, fingerprint=print_, weights=weights),
        job(row(1.0), measures=theirs, settings=settings_, name="release", weights=baseline),
    )


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (scaled(epsilon=0.6), "epsilon of geomca is 0.5 here and 0.6 in the baseline"),
        (scaled(cut=4.0), "cut-off scale of magnitude is 3 here and 4 in the baseline"),
        (scaled(bandwidths=(1.5, 2.5)), "bandwidth 2 of vendi rbf is 2 here and 2.5 in"),
        (scaled(bandwidths=(1.50001, 2.0)), "bandwidth of vendi rbf is 1.5 here and 1.50001 in"),
    ],
)
def test_scales_derived_from_other_vectors_may_not_differ(
    theirs: dict[str, Any], message: str
) -> None:
    assert message in refusal(*scaled_jobs(scaled(), theirs, print_="other"))
    # The same vectors, drawn from with another seed: to be known, and compared.
    found = compare(*scaled_jobs(scaled(), theirs))
    none_left_out(found)
    [note] = found.notes
    assert note.startswith(message)
    assert note.endswith("derived from the same vectors by another draw of rows")


def test_scales_derived_with_other_weights_may_not_differ() -> None:
    ours, theirs = scaled_jobs(scaled(), scaled(bandwidths=(1.5, 2.5)), weights="f00d")
    assert "bandwidth 2 of vendi rbf is 2 here and 2.5 in" in refusal(ours, theirs)


def test_scales_that_were_given_are_not_called_derived() -> None:
    rbf = row(1.0, measure="vendi", kernel="rbf", order="1", of="corpus")

    def made(given: float, print_: str) -> FinishedJob:
        kernels = [{"name": "rbf", "bandwidth": given}]
        return job(
            rbf,
            measures=scaled(bandwidths=(given,)),
            settings=with_setting("measures.vendi.kernels", kernels) | {"scales_from": "auto"},
            fingerprint=print_,
        )

    # A kernel that only one job has doesn't make the scale of another one a given one.
    derived = [
        job(
            row(1.0, measure="vendi", kernel="rbf median", order="1"),
            *([row(1.0, measure="vendi", kernel="rbf 9.0", order="1")] if given else []),
            measures=scaled(bandwidths=(1.5 + given, *given * (9.0,))),
            settings=with_setting(
                "measures.vendi.kernels",
                [{"name": "rbf", "bandwidth": at} for at in ("median", *given * (9.0,))],
            )
            | {"scales_from": "auto"},
            fingerprint="f00d" if given else "c0ffee",
        )
        for given in (0, 1)
    ]
    [median, *_] = compare(*derived).scores
    assert [each.kind for each in median.mismatches] == ["own scale"]
    assert "each job derived its own bandwidth" in compare(*derived).describe_own_scales()

    # Nor is one called derived that no score of both jobs has.
    only = [
        job(
            row(1.0, measure="vendi", kernel=f"rbf {given}", order="1"),
            measures=scaled(bandwidths=(at,)),
            settings=with_setting("measures.vendi.kernels", [{"name": "rbf", "bandwidth": given}])
            | {"scales_from": "auto"},
            fingerprint=given,
        )
        for given, at in (("median", 3.3), ("3.0", 3.0))
    ]
    assert not compare(*only).describe_own_scales()

    found = compare(made(2.0, "c0ffee"), made(3.0, "f00d"))
    assert not found.describe_own_scales()
    assert [line.split(" is ")[0] for line in found.describe_mismatches()] == [
        "measures.vendi.kernels",
        "bandwidth of vendi rbf",
    ]


def test_scales_that_other_settings_derived_are_named_by_the_settings() -> None:
    ours, theirs = scaled_jobs(scaled(), scaled())
    median = [{"name": "rbf", "bandwidth": "median"}]
    kernels = with_setting("measures.vendi.kernels", median) | {"scales_from": "auto"}
    other = job(
        row(1.0), measures=scaled(bandwidths=(9.0,)), settings=kernels, fingerprint="c0ffee"
    )
    found = compare(other, theirs)
    assert [item.what for item in found.mismatches] == ["measures.vendi.kernels"]
    assert not found.notes
    assert not compare(ours, theirs).mismatches


def test_the_same_rows_beside_others_are_not_the_same_pairs() -> None:
    pair = row(1.0, of="pair")
    ours, theirs = (
        job(row(1.0), pair, name=name, reference=(50, name)) for name in ("first", "second")
    )
    assert compare(ours, theirs).verdict.value == "cannot_tell"
    # Other ids may pair the same rows otherwise.
    paired = SETTINGS | {"pair": "ids"}
    ours, theirs = (
        job(row(1.0), row(at, of="pair"), settings=paired, name=f"n{at}", reference=(50, "same"))
        for at in (1.0, 0.5)
    )
    assert compare(ours, theirs).verdict.value == "cannot_tell"
    assert compare(ours, ours).verdict == SAME_ROWS
    alone = [job(row(1.0), name=name, reference=(50, name)) for name in ("first", "second")]
    assert compare(*alone).verdict == SAME_ROWS
    assert compare(ours, ours).verdict == SAME_ROWS


@pytest.mark.parametrize("theirs", [scaled(), scaled(epsilon=None), {}, {"vendi": None}])
def test_equal_or_absent_scales_are_alike_wherever_they_come_from(theirs: dict[str, Any]) -> None:
    for scales_from in ("auto", "jobs/lender-1a2b3c4d"):
        found = compare(*scaled_jobs(scaled(), theirs, scales_from, print_="other"))
        none_left_out(found)
        assert not found.notes


def test_scales_lent_by_different_jobs_are_compared_by_value() -> None:
    refusal(*scaled_jobs(scaled(), scaled(cut=5.0), "jobs/lender-1a2b3c4d"))


def test_scales_come_from_the_reference_where_there_is_one() -> None:
    settings_ = {**SETTINGS, "scales_from": "auto"}
    ours = job(
        row(1.0), measures=scaled(), settings=settings_, reference=(9, "r"), fingerprint="other"
    )
    theirs = job(
        row(1.0), measures=scaled(0.6), settings=settings_, reference=(9, "r"), name="release"
    )
    found = compare(ours, theirs)
    none_left_out(found)
    assert len(found.notes) == 1


def test_a_folder_without_configuration_is_compared_with_a_note() -> None:
    found = compare(job(row(1.0)), job(row(1.0), settings=None, name="release"))
    none_left_out(found)
    [note] = found.notes
    assert note == (
        "jobs/release-1a2b3c4d holds no config.json: the settings of its measures are unknown "
        "and were assumed to match"
    )


def test_several_things_are_named_at_once_and_marked_on_their_scores() -> None:
    ours = job(
        row(1.0, measure="heat", size_dependent=False),
        row(1.0, measure="vendi"),
        row(1.0, size_dependent=False),
        settings=with_setting("measures.heat.k", 7),
    )
    theirs = job(*(_original(s) for s in ours.scores), name="release", n=90)
    text = refusal(ours, theirs)
    assert text.startswith(
        "measures.heat.k is 7 here and 5 in the baseline; n of the corpus is 100"
    )
    marked = [[item.what for item in found.mismatches] for found in compare(ours, theirs).scores]
    assert marked == [["measures.heat.k"], ["n of the corpus"], []]


def _original(score: Any) -> Row:
    return dict(score.model_dump(exclude_none=True))


# --- documents --------------------------------------------------------------------------------


def test_a_real_document_is_compared_score_by_score() -> None:
    document = example_results()
    whole = finished_job(document, None, "a")
    found = compare(whole, finished_job(without_reference(document), None, "b"))
    expected = {"corpus": Verdict.WITHIN_BOUNDS}
    assert len(found.scores) == len(document["scores"]) == 34
    for compared in found.scores:
        assert compared.verdict is expected.get(compared.score.of, Verdict.ONLY_IN_JOB)


@pytest.mark.parametrize("part", ["measures", "arrays", "timings"])
def test_only_scores_and_identity_are_read(part: str) -> None:
    document = example_results()
    document[part] = type(document[part])()
    found = compare(finished_job(document, None, "a"), finished_job(example_results(), None, "b"))
    assert {compared.verdict for compared in found.scores} == {Verdict.WITHIN_BOUNDS}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["scores"][0].update(value=math.nan), "scores.0.value must be a finite number"),
        (lambda d: d["scores"][0].update(lower=None), "scores.0: a value needs its bracket"),
        (lambda d: d["scores"][0].update(lower=9.0), "scores.0: lower is above upper"),
        (lambda d: d["scores"][0].update(of="both"), "scores.0.of must be 'corpus', 'reference'"),
        (lambda d: d["scores"][0].pop("measure"), "scores.0.measure is missing"),
        (lambda d: d.pop("scores"), "scores is missing; the file is damaged, run the job again"),
        (lambda d: d.pop("arrays"), "arrays is missing; the file is damaged, run the job again"),
        (
            lambda d: [each.pop("score") for each in d["scores"]],
            "scores.0.score is missing; the file is damaged, run the job again",
        ),
        (
            lambda d: d.update(schema="latentscale.results/2"),
            "its schema is latentscale.results/2, and this version reads latentscale.results/1",
        ),
    ],
)
def test_a_document_outside_the_contract_is_named(
    change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    document = results([row(1.0)])
    change(document)
    with pytest.raises(BadInput) as caught:
        finished_job(document, None, "jobs/x")
    assert str(caught.value).startswith(f"jobs/x/results.json: {message}")


def test_long_settings_are_shown_from_where_they_differ() -> None:
    kernels = [[{"name": "cosine", "bandwidth": None}] * 3 + [{"bandwidth": at}] for at in (2, 3)]
    said = str(Mismatch("setting", "kernels", *kernels))
    assert said == (
        'kernels is …": null}, {"bandwidth": 2}] here and …": null}, {"bandwidth": 3}] '
        "in the baseline"
    )
    assert str(Mismatch("setting", "k", 5, 7)) == "k is 5 here and 7 in the baseline"


def test_scores_of_another_dimension_are_left_out() -> None:
    rows = (
        row(1.0),
        row(3.0, measure="heat", score="heat trace"),
        row(7.0, measure="duplicates", score="exact duplicates", unit="rows"),
        row(9.0, measure="duplicates", score="near-duplicates", unit="rows"),
    )
    ours, theirs = job(*rows), job(*rows, name="release")

    def of_dimension(d: int, like: FinishedJob) -> FinishedJob:
        corpora = like.results.corpora
        assert corpora.corpus is not None
        other = corpora.model_copy(update={"corpus": corpora.corpus.model_copy(update={"d": d})})
        return replace(like, results=like.results.model_copy(update={"corpora": other}))

    ours, other = of_dimension(64, ours), of_dimension(99, theirs)
    found = compare(ours, other)
    [note] = found.notes
    assert note == "the corpora have 64 and 99 dimensions, so the model that made them is another"
    away = "not comparable: dimension of the corpus is 64 here and 99 in the baseline"
    assert [score.why_not for score in found.scores] == [away, "", "", away]
    anyway = compare(ours, other, allow_incomparable=True)
    assert not any(score.why_not for score in anyway.scores)
    assert compare(ours, of_dimension(64, theirs)).notes == ()


def test_a_job_may_be_named_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path / "jobs/nightly-run-1a2b3c4d", row(1.0))
    for name in ("nightly-run-1a2b3c4d", "nightly-run", "nightly_run", "jobs/Nightly run"):
        assert read_job(name).url.endswith("/jobs/nightly-run-1a2b3c4d")
    with pytest.raises(BadInput, match=r"did you mean .*jobs/nightly-run-1a2b3c4d\?"):
        read_job("jobs/nightly-run-1a2b3c4")
    with pytest.raises(BadInput, match="no job of this name is finished"):
        read_job("weekly@latest")


def test_labels_of_one_corpus_alone_are_said_not_to_be_compared() -> None:
    documents = [results([row(1.0)], name=name) for name in ("candidate", "release")]
    documents[1]["corpora"]["corpus"]["labels_fingerprint"] = "f00d"
    ours, theirs = (
        finished_job(each, SETTINGS, f"jobs/{place}") for place, each in enumerate(documents)
    )
    said = "labels weren't compared: the corpus of the {} has none"
    assert said.format("job") in compare(ours, theirs).notes
    assert said.format("baseline") in compare(theirs, ours).notes
    assert not any("labels" in note for note in compare(theirs, theirs).notes)
