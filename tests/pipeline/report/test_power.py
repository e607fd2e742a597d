"""How many rows a difference takes: as predicted, so it is found."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import nctdtrinc

from latentscale.estimate import student_quantile
from latentscale.sampling.fresh_samples import expect
from latentscale.sampling.shares import expect_share
from latentscale_pipeline.compare.jobs import compare
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.finished_job import FinishedJob, read_job
from latentscale_pipeline.measures.fresh_samples import SAMPLES, SampleSizes
from latentscale_pipeline.report.power import Power, find_power
from latentscale_pipeline.results.model import SHARE_OF_ROWS
from tests.conftest import Ended
from tests.support.jobs import measure_rows
from tests.support.results_documents import example_results, read, without_reference

Command = Callable[..., Ended]

ROWS, SAMPLED, USUAL = 100, 10, 50.0
LEVEL = 0.05


def drawn(rows: dict[str, int], samples: int) -> SampleSizes:
    sizes = SampleSizes(ROWS, samples, {}, compares=True)
    return replace(
        sizes, drawn={role: min(rows[role], samples * sizes.taken(role)) for role in rows}
    )


def job(n: dict[str, int], d: int = 64, **score: Any) -> FinishedJob:
    """A job with one headline score."""
    results = example_results() if "reference" in n else without_reference(example_results())
    for role, rows in n.items():
        results["corpora"][role] |= {"n": rows, "d": d}
    whole = {"measure": "magnitude", "of": "corpus", "score": "area", "unit": "items"}
    bracket = {"value": USUAL, "lower": USUAL, "upper": USUAL, "bounds": "exact"}
    results["scores"] = [{**whole, **bracket, **score}]
    return FinishedJob("jobs/x", read(results), {"sampling": {"samples": SAMPLED}})


def found_four_times_in_five(freedom: int) -> float:
    """Noncentrality at which Student's test finds a difference four times in five."""
    return float(nctdtrinc(freedom, 0.2, student_quantile(1 - LEVEL / 2, freedom)))


def expected(variance: float, n: dict[str, int]) -> dict[str, Any]:
    """The expected range of a score with this variance on one sample."""
    sizes = drawn(n, SAMPLED)
    error = math.sqrt(variance * (sizes.share("corpus") + sizes.share("reference")))
    reach, half = found_four_times_in_five(SAMPLED), student_quantile(0.975, SAMPLED)
    return {
        "rows": ROWS, "found": USUAL, "centre": USUAL, "z": 0.0,
        "lower": USUAL - half * error, "upper": USUAL + half * error,
        "p": 1.0, "p_adjusted": 1.0, "smallest_found": reach * error,
    }  # fmt: skip


def tries(change: float, n: dict[str, int], samples: int, generator: np.random.Generator) -> float:
    """Find a changed mean of normal numbers by samples, and return how often that succeeds."""
    sizes = drawn(n, samples)

    def scores(role: str, moved: float) -> Any:
        rows = generator.normal(USUAL + moved, 1.0, n[role])
        taken = sizes.taken(role)  # type: ignore[arg-type]
        found = []
        for count in sizes.cuts(role).counts:  # type: ignore[arg-type]
            order = generator.permutation(len(rows))[: sizes.drawn[role]]  # type: ignore[index]
            found += [rows[order[i * taken : (i + 1) * taken]] for i in range(count)]
        return np.array(found)

    hits = 0
    for _ in range(300):
        corpus = scores("corpus", change * USUAL).mean(axis=1)
        parts = scores("reference", 0.0).reshape(samples, SAMPLES, ROWS).mean(axis=2)
        shares = sizes.share("corpus"), sizes.share("reference")
        hits += expect(corpus, parts[:, 1:], *shares).p <= LEVEL
    return hits / 300


def test_a_change_is_found_four_times_in_five_by_the_rows_it_takes() -> None:
    n = {"corpus": 1000, "reference": 2000}
    change = 0.001
    [power] = find_power(job(n, expected=expected(1 / ROWS, n)), change)
    assert power.needed is not None
    assert power.needed.rows > 2 * n["corpus"]
    assert power.needed.samples == power.needed.rows // ROWS
    grown = {"corpus": power.needed.rows, "reference": 2 * power.needed.rows}
    generator = np.random.default_rng(5)
    assert 0.74 < tries(change, grown, power.needed.samples, generator) < 0.88
    # What the job's own rows show is found as often, and the change isn't.
    assert 0.74 < tries(power.shown, n, SAMPLED, generator) < 0.88
    assert tries(change, n, SAMPLED, generator) < 0.6


def test_what_is_shown_is_what_the_results_say() -> None:
    n = {"corpus": 1000, "reference": 2000}
    found = expected(1 / ROWS, n)
    [power] = find_power(job(n, expected=found), 0.01)
    assert power.shown == pytest.approx(found["smallest_found"] / USUAL, rel=0.01)
    assert (power.rows, power.usual) == (ROWS, USUAL)
    # The fewest rows that have samples of this size show it already.
    assert power.needed is not None
    assert (power.needed.rows, power.needed.samples) == (3 * ROWS, SAMPLED)


def test_without_a_reference_two_such_jobs_are_compared() -> None:
    sample = {"rows": ROWS, "mean": USUAL, "variance": 0.01, "share": 0.1, "freedom": 9}
    [power] = find_power(job({"corpus": 1000}, samples=[sample]), 0.001)
    reach = found_four_times_in_five(9)
    # Ten samples that use up all rows once: the mean of all.
    assert power.shown == pytest.approx(reach * math.sqrt(2 * 0.01 / 10) / USUAL, rel=0.01)
    assert power.needed is not None
    assert power.needed.rows > 1000


@pytest.mark.parametrize(
    ("n", "usual", "change"),
    [
        ({"corpus": 500, "reference": 400}, 0.0, 0.01),
        ({"corpus": 500, "reference": 400}, 0.0, 0.001),
        ({"corpus": 5000, "reference": 5000}, 0.0, 0.01),
        ({"corpus": 5000, "reference": 9000}, 0.001, 0.0005),
        ({"corpus": 5000, "reference": 5000}, 0.2, 0.01),
    ],
)
def test_shares_of_rows_are_found_by_as_many_events(
    n: dict[str, int], usual: float, change: float
) -> None:
    about = {"measure": "duplicates", "score": "near-duplicates", "unit": SHARE_OF_ROWS}

    def smallest(rows: int) -> float:
        others = rows * n["reference"] // n["corpus"]
        share = expect_share(usual, rows, usual, others, rows_of_event=2.0)
        return share.smallest_found(LEVEL)

    shown = smallest(n["corpus"])
    found = {**expected(1 / ROWS, n), "centre": usual, "smallest_found": shown}
    value = {"value": usual, "lower": usual, "upper": usual}
    [power] = find_power(job(n, **about, **value, expected=found), change)
    assert power == Power(power.score, n["corpus"], usual, shown, power.needed)
    assert power.needed is not None
    assert power.needed.samples == 0
    assert (
        smallest(round(0.95 * power.needed.rows))
        > change
        > smallest(round(1.05 * power.needed.rows))
    )


def test_more_than_all_rows_can_not_change() -> None:
    about = {"measure": "duplicates", "score": "near-duplicates", "unit": SHARE_OF_ROWS}
    n = {"corpus": 2, "reference": 2}
    usual = expected(1 / ROWS, {"corpus": 1000, "reference": 2000})
    found = {**usual, "centre": 0.005, "smallest_found": 1.5}
    value = {"value": 0.0, "lower": 0.0, "upper": 0.0}
    [power] = find_power(job(n, **about, **value, expected=found), 1.0)
    assert power.shown is None
    assert power.needed is not None
    assert power.needed.rows == 150


def test_the_share_of_a_label_counts_beside_a_reference() -> None:
    about = {"measure": "label_shares", "score": "share", "label": "news", "unit": SHARE_OF_ROWS}
    n = {"corpus": 1000, "reference": 2000}
    share = {"value": 0.3, "lower": 0.3, "upper": 0.3}
    found = {**expected(1 / ROWS, n), "centre": 0.31, "smallest_found": 0.06}
    [power] = find_power(job(n, **about, **share, expected=found), 0.02)
    assert (power.usual, power.shown) == (0.31, 0.06)
    assert power.needed is not None
    assert power.needed.rows == pytest.approx(9000, rel=0.05)
    with pytest.raises(BadInput, match="no score of this job was measured on samples"):
        find_power(job({"corpus": 1000}, **about, **share, sampling_error=0.01), 0.02)


def test_no_number_of_rows_shows_what_samples_are_too_small_for() -> None:
    n = {"corpus": 1000, "reference": 2000}
    [power] = find_power(job(n, expected=expected(1e6, n)), 0.01)
    assert power.needed is None
    # Where samples would cover enough rows, but not so many are drawn.
    sampled = expected(1 / ROWS, n)
    [power] = find_power(job(n, expected=sampled), 0.0006)
    assert power.needed is not None
    [power] = find_power(job(n, d=500_000, expected=sampled), 0.0006)
    assert power.needed is None


def test_a_job_without_samples_is_refused() -> None:
    with pytest.raises(BadInput, match="no score of this job was measured on samples"):
        find_power(job({"corpus": 1000}), 0.01)


def test_the_command_prints_a_table(latentscale: Command, tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", generator.normal(size=(300, 6)).astype("f4"))
    ran = latentscale(
        *("run", tmp_path / "a.npy", "--reference", tmp_path / "b.npy", "--measures"),
        *("vendi,duplicates", "--name", "x", "--output", tmp_path / "jobs", "--quiet"),
    )
    assert ran.code == 0, ran.err
    shown = latentscale("power", tmp_path / "jobs" / "x", "--change", "0.5")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[1] == "Changes that 300 against 300 rows show four times in five:"
    assert lines[3].split("  ")[-2:] == ["0.5 % takes", "samples"]
    [near] = [line for line in lines if line.startswith("Near-duplicates")]
    assert " % of rows" in near
    found = json.loads(latentscale("power", tmp_path / "jobs" / "x", "--json").out)
    document = json.loads(next((tmp_path / "jobs").glob("x-*/results.json")).read_text())
    for one in found:
        [score] = [
            s for s in document["scores"]
            if all(s.get(k) == one[k] for k in ("measure", "score", "of", "kernel", "order"))
        ]  # fmt: skip
        smallest = score["expected"]["smallest_found"]
        usual = 1.0 if one["measure"] == "duplicates" else one["usual"]
        assert one["shown_from"] == pytest.approx(smallest / usual)
    assert len(found) > 5


def test_it_says_what_compare_says_of_all_rows(tmp_path: Path, latentscale: Command) -> None:
    """Of equally many rows compare takes the sampling error of all, which samples say worse.

    But under a bandwidth of its own rows, every job has another score, and samples are compared.
    """
    for seed in (1, 2):
        rows = np.random.default_rng(seed).normal(size=(400, 6)).astype("f4")
        np.save(tmp_path / f"v{seed}.npy", rows)
        options = ("--measures", "vendi", "--output", tmp_path / "jobs")
        assert latentscale("run", tmp_path / f"v{seed}.npy", *options).code == 0
    first, second = (read_job(str(tmp_path / "jobs" / name)) for name in ("v1", "v2"))
    found = find_power(first, 0.01)
    known = {
        (power.score.kernel, power.score.order): power
        for power in found
        if power.score.kernel in {"cosine", "rbf median"}
    }
    compared = []
    for score in compare(second, first).scores:
        expected = score.expected
        own = known.get((score.score.kernel, score.score.order))
        if expected is None or own is None:
            continue
        compared.append(own.score.kernel)
        assert own.rows == expected.rows == (400 if own.score.kernel == "cosine" else 50)
        assert own.usual == pytest.approx(expected.centre, rel=1e-12)
        assert own.shown == pytest.approx(expected.smallest_found / expected.centre, rel=0.3)
    assert (compared.count("cosine"), compared.count("rbf median")) == (3, 1)


def test_a_range_of_random_divisions_tells_no_size_of_change(
    tmp_path: Path, latentscale: Command
) -> None:
    for name, n in (("x", 300), ("y", 300)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(n).normal(size=(n, 5)))
    options = ("--measures", "mmd,spread,modes", "--output", tmp_path / "jobs")
    run = latentscale("run", tmp_path / "x.npy", "--reference", tmp_path / "y.npy", *options)
    assert run.code == 0, run.err
    ended = latentscale("power", tmp_path / "jobs" / "x")
    assert ended.code == 0, ended.err
    table, _, unknown = ended.out.partition("Of these, no size of change is known:\n")
    assert "Spread" in table
    assert "MMD" not in table
    assert "  MMD², rbf median\n" in unknown


def test_a_score_that_is_about_0_is_shown_in_its_own_unit() -> None:
    n = {"corpus": 1000, "reference": 1000}
    shown = []
    for centre in (0.0, -1e-9, 0.8):
        about = {"centre": centre, "lower": centre - 1.0, "upper": centre + 1.0}
        [power] = find_power(job(n, expected={**expected(1 / ROWS, n), **about}), 0.01)
        assert power.absolute
        assert power.needed is None
        shown.append(power.shown)
    assert shown == pytest.approx([shown[0]] * 3)
    about = {"centre": 8.0, "lower": 7.0, "upper": 9.0}
    [power] = find_power(job(n, expected={**expected(1 / ROWS, n), **about}), 0.01)
    assert not power.absolute
    assert power.shown == pytest.approx(shown[0] / 8.0)


def test_two_jobs_alone_are_compared_by_a_label(tmp_path: Path, latentscale: Command) -> None:
    rows = np.random.default_rng(4).normal(size=(600, 8))
    np.save(tmp_path / "x.npy", rows)
    labels = ["rare"] * 20 + ["x"] * 280 + ["y"] * 300
    (tmp_path / "l.txt").write_text("".join(f"{label}\n" for label in labels))
    options = ("--measures", "vendi,label_shares", "--output", tmp_path / "jobs")
    run = latentscale("run", tmp_path / "x.npy", "--labels", tmp_path / "l.txt", *options)
    assert run.code == 0, run.err
    ended = latentscale("power", tmp_path / "jobs" / "x")
    [line] = [line for line in ended.out.splitlines() if line.startswith("Rows (label ")]
    # The most frequent one takes the largest change.
    assert line.startswith("Rows (label y)")
    assert " % of rows  50 % " in line
    # A job beside a reference without labels doesn't compare them.
    np.save(tmp_path / "y.npy", rows + 0.01)
    beside = ("--labels", tmp_path / "l.txt", "--reference", tmp_path / "y.npy", "--name", "beside")
    assert latentscale("run", tmp_path / "x.npy", *beside, *options).code == 0
    assert "label" not in latentscale("power", tmp_path / "jobs" / "beside").out


def test_counts_of_a_job_alone_are_those_that_compare_finds(tmp_path: Path) -> None:
    rows = np.random.default_rng(4).normal(size=(600, 32))
    measures = "duplicates: {}, vendi: {kernels: [cosine], orders: [1, 2]}"
    measure_rows(tmp_path / "jobs", measures, corpus=rows)
    [path] = (tmp_path / "jobs").glob("*/results.json")
    found = {power.score.score: power for power in find_power(read_job(str(path.parent)), 0.01)}
    headlines = 3  # exact duplicates, near-duplicates, and the score of order 1
    usual = expect_share(0.0, 600, 0.0, 600, rows_of_event=2.0)
    shown = usual.smallest_found(LEVEL / headlines)
    assert found["near-duplicates"].shown == pytest.approx(shown)
    generator = np.random.default_rng(6)
    pairs = generator.binomial(300, shown, size=400)
    told = [
        expect_share(2 * count / 600, 600, 0.0, 600, rows_of_event=2.0).p <= LEVEL / headlines
        for count in pairs
    ]
    assert np.mean(told) >= 0.75


def test_a_range_that_is_cut_on_one_side_has_the_width_of_the_other() -> None:
    n = {"corpus": 1000, "reference": 2000}
    whole = expected(1 / ROWS, n)
    cut = {**whole, "upper": whole["centre"] + 0.1 * (whole["upper"] - whole["centre"])}
    [power], [other] = (find_power(job(n, expected=each), 0.01) for each in (whole, cut))
    assert power.shown == pytest.approx(other.shown)
