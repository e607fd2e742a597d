"""Control limits: by hand, and how often they are exceeded by chance."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from latentscale_pipeline.report.control_chart import (
    ControlLimits,
    JobOfSeries,
    comparable_scores,
    control_limits,
    false_alarm_rate,
)
from latentscale_pipeline.results.model import SHARE_OF_ROWS, SampledScore, Score
from latentscale_pipeline.results.part import Role


def score(value: float, **fields: object) -> Score:
    known = {"measure": "toy", "of": "corpus", "score": "spread", "bounds": "exact"}
    return Score(value=value, lower=value, upper=value, **known, **fields)  # type: ignore[arg-type]


def limits_of(
    own: Score, earlier: Sequence[Score], rate: float, rows: int = 1000, before: int = 1000
) -> ControlLimits | None:
    """The limits of a job whose corpus has so many rows, and those before it so many."""
    return control_limits(own, rows, [(before, each) for each in earlier], rate)


def test_limits_by_hand() -> None:
    earlier = [score(value) for value in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)]
    limits = limits_of(score(9.0), earlier, false_alarm_rate(2.0))
    assert limits is not None
    reach = stats.t.ppf(1 - stats.norm.sf(2.0), 5) * math.sqrt(3.5) * math.sqrt(7 / 6)
    assert (limits.centre, limits.jobs, limits.rows) == (3.5, 6, None)
    assert (limits.lower, limits.upper) == pytest.approx((3.5 - reach, 3.5 + reach))
    assert limits.exceeded is bool(reach < 5.5)
    assert limits.away == pytest.approx(5.5 / reach)
    assert limits_of(score(9.0), earlier[:4], 0.05) is None


def test_means_of_samples_take_the_place_of_scores_where_all_have_them() -> None:
    def sampled(value: float, mean: float) -> Score:
        means = [SampledScore(rows=100, mean=mean, variance=1.0, share=0.1, freedom=9)]
        return score(value, samples=means)

    earlier = [sampled(100.0 * at, 5.0 + at % 2) for at in range(8)]
    limits = limits_of(sampled(1e4, 5.5), earlier, 0.003)
    assert limits is not None
    assert (limits.value, limits.centre, limits.rows) == (5.5, 5.5, 100)
    assert not limits.exceeded


def test_samples_count_where_ranges_are_of_all_rows() -> None:
    """A corpus that grows from 9,000 to 12,000 rows, whose scores of all rows have ranges."""
    usual = {"found": 1.0, "centre": 1.0, "lower": 0.0, "upper": 2.0, "z": 0.0, "p": 1.0}

    def one(rows: int, value: float, mean: float) -> Score:
        means = [SampledScore(rows=1000, mean=mean, variance=1.0, share=0.1, freedom=9)]
        known = {"rows": rows, "smallest_found": 1.0, **usual}
        return score(value, samples=means, expected=known)

    earlier = [JobOfSeries(9000, None, [one(9000, 50.0, 30.0 + 0.01 * at)]) for at in range(6)]
    last = one(12000, 60.0, 30.02)
    before = comparable_scores(last, JobOfSeries(12000, None, []), earlier)
    assert len(before) == 6
    limits = control_limits(last, 9000, before, 0.0027)
    assert limits is not None
    assert (limits.rows, limits.exceeded) == (1000, False)


def test_a_job_without_common_samples_leaves_the_others() -> None:
    def one(value: float, *rows: int) -> Score:
        means = [
            SampledScore(rows=each, mean=value, variance=1.0, share=0.1, freedom=9) for each in rows
        ]
        return score(value, samples=means or None)

    pilots = [JobOfSeries(300, None, [one(9.0, 60)]), JobOfSeries(900, None, [one(8.0)])]
    nights = [JobOfSeries(900 + at, None, [one(5.0 + 0.01 * at, 100, 200)]) for at in range(6)]
    before = comparable_scores(one(3.0, 200, 100), JobOfSeries(905, None, []), [*pilots, *nights])
    assert [(n, own.value) for n, own in before] == [(900 + at, 5.0 + 0.01 * at) for at in range(6)]
    limits = control_limits(one(3.0, 200, 100), 9000, before, 0.0027)
    assert limits is not None
    assert (limits.rows, limits.exceeded) == (200, True)
    # Without samples in common, corpora of equally many rows are compared.
    alone = comparable_scores(one(3.0, 50), JobOfSeries(905, None, []), [*pilots, *nights])
    assert [(n, own.value) for n, own in alone] == [(905, 5.05)]


def test_of_a_series_that_grew_the_larger_samples_set_limits() -> None:
    def one(*rows: int) -> Score:
        means = [
            SampledScore(rows=each, mean=9.0, variance=1.0, share=0.1, freedom=9) for each in rows
        ]
        return score(9.0, samples=means)

    small = [JobOfSeries(1000, None, [one(200, 100, 50)])] * 10
    large = [JobOfSeries(9000, None, [one(1000, 500, 50)])]
    last = one(1000, 500, 50)
    for count, jobs, rows in ((9, 19, 50), (10, 10, 1000)):
        before = comparable_scores(last, JobOfSeries(9000, None, []), [*small, *large * count])
        limits = control_limits(last, 9000, before, 0.0027)
        assert limits is not None
        assert (limits.jobs, limits.rows) == (jobs, rows)
    # As many as limits need.
    middle = [JobOfSeries(3000, None, [one(500, 200, 50)])] * 4
    before = comparable_scores(last, JobOfSeries(9000, None, []), [*middle, *large * 4])
    limits = control_limits(last, 9000, before, 0.0027)
    assert limits is not None
    assert (limits.jobs, limits.rows) == (8, 500)


def test_only_what_compares_sets_limits() -> None:
    own = score(1.0)
    earlier = [JobOfSeries(rows, "a", [score(2.0)]) for rows in (10, 20, 10)]
    assert len(comparable_scores(own, JobOfSeries(10, "b", []), earlier)) == 2
    free = own.model_copy(update={"size_dependent": False})
    assert len(comparable_scores(free, JobOfSeries(10, "b", []), earlier)) == 3
    pair = own.model_copy(update={"of": "pair"})
    pairs = [JobOfSeries(10, name, [pair]) for name in ("a", "b", None)]
    assert len(comparable_scores(pair, JobOfSeries(10, "b", []), pairs)) == 1


@pytest.mark.parametrize(
    ("of", "uses", "usable"),
    [
        ("corpus", True, [True, True, False, False, True]),
        ("reference", True, [True, False, True, False, True]),
        ("pair", True, [True, False, False, False, True]),
        ("corpus", False, [True] * 5),
    ],
)
def test_rows_that_count_by_weights_set_limits_for_such(
    of: str, uses: bool, usable: list[bool]
) -> None:
    own = score(1.0).model_copy(update={"measure": "vendi", "kernel": "cosine", "of": of})
    settings = {"vendi": {"weights": uses}}

    def night(corpus: bool | None, reference: bool | None) -> JobOfSeries:
        weighted: dict[Role, bool | None] = {"corpus": corpus, "reference": reference}
        return JobOfSeries(10, "a", [own], settings, weighted)

    kinds = [(True, True), (True, False), (False, True), (False, False), (None, None)]
    found = [len(comparable_scores(own, night(True, True), [night(*kind)])) for kind in kinds]
    assert found == usable


@pytest.mark.parametrize(
    ("measure", "of", "usable"),
    [
        ("vendi", "corpus", [True, True, False, False, True]),
        ("vendi", "reference", [True, False, True, False, True]),
        ("heat", "corpus", [True] * 5),
        ("alignment", "pair", [True] * 5),
        ("mmd", "pair", [True, False, False, False, True]),
        ("of a user", "corpus", [True, True, False, False, True]),
    ],
)
def test_models_of_other_dimensions_set_limits_where_scores_span_them(
    measure: str, of: str, usable: list[bool]
) -> None:
    own = score(1.0).model_copy(update={"measure": measure, "of": of})

    def night(corpus: int | None, reference: int | None) -> JobOfSeries:
        dimensions: dict[Role, int | None] = {"corpus": corpus, "reference": reference}
        return JobOfSeries(10, "a", [own], dimensions=dimensions)

    kinds = [(8, 8), (8, 12), (12, 8), (12, 12), (None, None)]
    found = [len(comparable_scores(own, night(8, 8), [night(*kind)])) for kind in kinds]
    assert found == usable


def test_what_never_changed_has_its_sampling_error() -> None:
    earlier = [score(0.0, sampling_error=0.01)] * 10
    small, large = (limits_of(score(value), earlier, 0.0027) for value in (0.02, 0.2))
    assert small is not None
    assert large is not None
    assert (small.exceeded, large.exceeded) == (False, True)
    certain = [score(2.0)] * 10
    zeros = limits_of(score(1e-17), [score(0.0)] * 6, 0.0027)
    assert zeros is not None
    assert not zeros.exceeded
    for value, exceeded in ((2.0, False), (2.0 + 1e-9, False), (2.1, True)):
        limits = limits_of(score(value), certain, 0.0027)
        assert limits is not None
        assert limits.exceeded is exceeded


def test_a_share_that_was_one_in_all_samples_may_miss_a_row() -> None:
    def share(value: float) -> Score:
        own = SampledScore(rows=1000, mean=value, variance=0.0, share=0.2, freedom=9)
        known = {"measure": "geomca", "of": "corpus", "score": "precision", "bounds": "exact"}
        return Score(value=value, lower=value, upper=value, samples=(own,), **known)  # type: ignore[arg-type]

    ones = [share(1.0)] * 8
    found = [limits_of(share(value), ones, 0.0027) for value in (1.0, 0.9998, 0.9)]
    assert [each is not None and each.exceeded for each in found] == [False, False, True]
    # Half a row of 8 times 5000, and Student's quantile with 7 degrees of freedom.
    deviation = math.sqrt(0.5 / 8) / 5000
    reach = stats.t.ppf(1 - 0.0027 / 2, 7) * deviation * math.sqrt(9 / 8)
    assert found[0] is not None
    assert (found[0].lower, found[0].upper) == (pytest.approx(1.0 - reach), 1.0)


@pytest.mark.parametrize(
    ("histories", "window"),
    [(60, 14), pytest.param(1000, 14, marks=pytest.mark.full),
     pytest.param(1000, 5, marks=pytest.mark.full)],
)  # fmt: skip
@pytest.mark.parametrize("sigmas", [2.0, 3.0])
def test_false_alarms_are_as_frequent_as_stated(histories: int, window: int, sigmas: float) -> None:
    generator = np.random.default_rng([histories, window])
    rate, alarms, nights = false_alarm_rate(sigmas), 0, 100
    for _ in range(histories):
        values = [score(value) for value in generator.normal(7.0, 2.0, size=window + nights)]
        for night in range(window, window + nights):
            limits = limits_of(values[night], values[night - window : night], rate)
            assert limits is not None
            alarms += limits.exceeded
    expected = rate * histories * nights
    # Neighbouring nights share their limits, so alarms come in groups: twice the Poisson variance.
    slack = 0.2 * expected if histories == 1000 else 4 * math.sqrt(2 * expected)
    assert abs(alarms - expected) <= slack


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"measure": "vendi", "score": "vendi", "kernel": "rbf median", "order": "1"}, 2),
        ({"measure": "vendi", "score": "vendi", "kernel": "cosine", "order": "1"}, 4),
        ({"measure": "magnitude", "score": "area"}, 2),
        ({"measure": "spread", "score": "spread", "kernel": "1/σ"}, 2),
        ({"measure": "heat", "score": "heat_trace"}, 4),
    ],
)
def test_scales_of_another_reference_set_no_limits(fields: dict[str, str], count: int) -> None:
    one = Score(value=1.0, lower=1.0, upper=1.0, bounds="exact", of="corpus", **fields)  # type: ignore[arg-type]
    earlier = [JobOfSeries(100, print_, [one]) for print_ in ("a", "a", "b", "b")]
    assert len(comparable_scores(one, JobOfSeries(100, "b", [one]), earlier)) == count


@pytest.mark.parametrize(
    ("share", "before", "rows"),
    [(0.01, 20_000, 20_000), (0.01, 20_000, 5000), (0.01, 100_000, 2000), (3e-5, 10_000, 10_000)],
)
def test_false_alarms_of_counts_whatever_the_rows(share: float, before: int, rows: int) -> None:
    generator = np.random.default_rng(rows)

    def count(n: int) -> Score:
        value = 2 * generator.binomial(n // 2, share) / n
        return score(value, unit=SHARE_OF_ROWS, size_dependent=False)

    alarms = 0
    for _ in range(600):
        limits = limits_of(count(rows), [count(before) for _ in range(14)], 0.0027, rows, before)
        assert limits is not None
        alarms += limits.exceeded
    assert alarms <= 5


def test_a_count_far_from_usual_is_outside_whatever_the_rows() -> None:
    def count(value: float) -> Score:
        return score(value, unit=SHARE_OF_ROWS, size_dependent=False)

    earlier = [count(0.01 + 0.0002 * (place % 3)) for place in range(14)]
    found = [
        limits_of(count(value), earlier, 0.0027, 2000, 100_000) for value in (0.0, 0.011, 0.03)
    ]
    assert [each is not None and each.exceeded for each in found] == [True, False, True]


def test_means_over_fewer_samples_vary_more() -> None:
    generator = np.random.default_rng(3)

    def mean(share: float) -> Score:
        value = 5.0 + math.sqrt(share) * generator.normal()
        own = SampledScore(rows=100, mean=value, variance=1.0, share=share, freedom=9)
        return score(value, samples=[own])

    alarms = 0
    for _ in range(600):
        limits = limits_of(mean(0.2), [mean(0.02) for _ in range(14)], 0.0027)
        assert limits is not None
        alarms += limits.exceeded
    assert alarms <= 5


@pytest.mark.parametrize(
    ("share_of", "rows", "told_before"),
    [
        *((400, 10**6, told) for told in (True, False)),
        *((1000, 10**6, told) for told in (True, False)),
        (100_000, 300, True),
    ],
)
def test_a_share_of_other_rows_has_their_limits(
    share_of: int, rows: int, told_before: bool
) -> None:
    """Of the reference's rows, or of random ones: earlier versions didn't write of how many."""

    def count(found: int, of: int | None = share_of) -> Score:
        value = found / share_of
        return score(value, unit=SHARE_OF_ROWS, size_dependent=False, share_of=of)

    earlier = [count(0, share_of if told_before else None) for _ in range(14)]
    for found in (1, 30):
        limits = limits_of(count(found), earlier, 0.0027, rows, rows)
        whole = limits_of(count(found, None), [count(0, None)] * 14, 0.0027, share_of, share_of)
        assert limits is not None
        assert limits == whole
        assert limits.exceeded == (found > 1)


def test_shares_of_all_rows_before_a_sample_of_many_are_of_no_more() -> None:
    def count(value: float, of: int | None = None) -> Score:
        return score(value, unit=SHARE_OF_ROWS, size_dependent=False, share_of=of)

    values = (0.010, 0.011, 0.009, 0.010, 0.0105)
    last = count(0.010, 100_000)
    few = control_limits(last, 10**6, [(2000, count(value)) for value in values], 0.0027)
    known = [(2000, count(value, 2000)) for value in values]
    assert few == control_limits(last, 10**6, known, 0.0027)
