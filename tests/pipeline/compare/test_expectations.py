"""The verdict of a comparison: jobs on corpora of one source, and on changed ones."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.compare.cells import (
    format_notes,
    format_score,
    format_scores,
    summarise_score,
)
from latentscale_pipeline.compare.comparability import Mismatch
from latentscale_pipeline.compare.difference import ComparedScore
from latentscale_pipeline.compare.document import comparison_document
from latentscale_pipeline.compare.gate_checks import check_gates
from latentscale_pipeline.compare.gates import Gate
from latentscale_pipeline.compare.jobs import Comparison, compare
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.duplicates.scores import NEAR_ROWS_LEFT_OUT
from latentscale_pipeline.measures.finished_job import FinishedJob, read_job
from latentscale_pipeline.results.model import ExpectedRange, Score
from latentscale_pipeline.views.formatting import format_apart
from tests.support.comparisons import job, row, with_setting
from tests.support.jobs import run_here

pytestmark = pytest.mark.slow

CENTRES = np.random.default_rng(3).normal(size=(6, 10))
MEASURES = "{heat: {}, magnitude: {}, vendi: {}, duplicates: {metric: euclidean, within: 0.01}}"


def sample(n: int, seed: int, *, kinds: int = 6) -> np.ndarray:
    generator = np.random.default_rng([n, seed])
    rows = CENTRES[generator.integers(kinds, size=n)] + 0.3 * generator.normal(size=(n, 10))
    return rows.astype("f4")


def with_copies(rows: np.ndarray) -> np.ndarray:
    changed = rows.copy()
    changed[:20] = rows[20:40] + np.float32(1e-4)
    return changed


Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a job on some rows; the same job once."""
    folder = tmp_path_factory.mktemp("jobs")

    def run(
        name: str, rows: np.ndarray, *, reference: np.ndarray | None = None, **keys: str
    ) -> Any:
        np.save(folder / f"{name}.npy", rows)
        text = f"name: {name}\ncorpus: {folder}/{name}.npy\noutput: {folder}/jobs\n"
        if reference is not None:
            np.save(folder / "reference.npy", reference)
            text += f"reference: {folder}/reference.npy\n"
        keys = {"measures": MEASURES, "cluster": "{kind: serial}", **keys}
        text += "".join(f"{key}: {value}\n" for key, value in keys.items())
        (folder / f"{name}.yaml").write_text(text)
        run_here(folder / f"{name}.yaml")
        [made] = (folder / "jobs").glob(f"{name}-????????")
        return read_job(str(made))

    return run


def found_in(comparison: Comparison) -> set[str]:
    known = [score for score in comparison.scores if score.p is not None]
    return {score.score.measure for score in known if score.significant}


def test_samples_of_one_source_show_no_difference(run: Run) -> None:
    comparison = compare(run("release", sample(600, 1)), run("nightly", sample(600, 2)))
    verdict = comparison.results.verdict
    assert verdict is not None
    assert verdict.value == "no_difference_found"
    assert "where a fresh sample of the baseline's source would put them" in verdict.reason
    # The bandwidth comes from each corpus, so the numbers aren't alike, but those of samples are.
    kernels = [s for s in comparison.scores if (s.score.kernel or "").startswith("rbf")]
    [rbf] = [s for s in kernels if s.score.order == "1"]
    assert rbf.left_out
    assert rbf.difference is None
    assert rbf.expected is not None
    assert rbf.expected.rows == 100
    assert not found_in(comparison)


def test_corpora_of_any_two_sizes_compare(run: Run) -> None:
    release = run("thousand", sample(1100, 1))
    for name, rows, value in (
        ("hundreds", sample(300, 2), "no_difference_found"),
        ("few-kinds-of-them", sample(300, 3, kinds=5), "differs"),
    ):
        comparison = compare(run(name, rows), release)
        verdict = comparison.results.verdict
        assert verdict is not None
        assert verdict.value == value
        vendi = [score for score in comparison.scores if score.score.measure == "vendi"]
        assert {score.expected.rows for score in vendi if score.expected is not None} == {50}


def test_samples_derive_their_scales_even_where_the_job_takes_those_of_another(run: Run) -> None:
    release = run("release", sample(600, 1))
    lent = run("lent", sample(600, 6), scales_from=release.url)
    comparison = compare(lent, release)
    assert not comparison.mismatches
    assert comparison.results.verdict is not None
    assert comparison.results.verdict.value == "no_difference_found"
    [area] = [score for score in comparison.scores if score.score.score == "area"]
    assert area.expected is not None
    assert area.expected.p > 0.001


@pytest.mark.parametrize(
    ("changed", "measures"),
    [
        (lambda rows: sample(len(rows), 3, kinds=5), ["vendi"]),
        (with_copies, ["duplicates"]),
    ],
)
def test_a_change_is_found_and_named(
    run: Run, changed: Callable[[np.ndarray], np.ndarray], measures: list[str]
) -> None:
    release = run("release", sample(600, 1))
    comparison = compare(run(f"other-{measures[0]}", changed(sample(600, 2))), release)
    verdict = comparison.results.verdict
    assert verdict is not None
    assert verdict.value == "differs"
    assert set(measures) <= found_in(comparison)


def test_near_duplicates_make_nothing_more_diverse(run: Run) -> None:
    """The area goes up to the scale where near rows are told apart, so it is larger with them."""
    measures = {"measures": "{duplicates: {}, magnitude: {scales: 10}, vendi: {kernels: [cosine]}}"}
    rows = sample(600, 2)
    rows[:60] = rows[60:120] + 1e-4 * np.random.default_rng(3).normal(size=(60, rows.shape[1]))
    before = run("once", sample(600, 1), **measures)
    verdict = compare(run("copied", rows, **measures), before).results.verdict
    assert verdict is not None
    assert verdict.value == "differs"
    assert "MagArea" in f"{verdict.reason} {verdict.also}"
    assert "more diverse" not in (verdict.also or "")
    assert "near-duplicates move far" in (verdict.also or "")


def test_corpora_of_other_sizes_are_compared_on_samples_of_one_size(run: Run) -> None:
    few, many = run("release", sample(600, 1)), run("more", sample(900, 4))
    comparison = compare(many, few)
    assert comparison.results.verdict is not None
    assert comparison.results.verdict.value == "no_difference_found"
    [area] = [s for s in comparison.scores if s.score.score == "area"]
    assert area.left_out
    # The area goes up to another scale, and both are said.
    cuts = [job.results.part("magnitude").corpus.scales[-1] for job in (many, few)]
    assert cuts[0] != cuts[1]
    said = comparison.describe_own_scales()
    assert said.endswith("; samples are compared all the same, each at its own scale")
    here, there = format_apart(*cuts)
    assert f"cut-off scale of magnitude ({here} here, {there} there)" in said
    lent = replace(many, settings={**(many.settings or {}), "scales_from": "jobs/big"})
    said = compare(lent, few).describe_own_scales()
    assert said.startswith("the jobs differ in ")
    assert "; this job takes them from jobs/big, so the differences of scores" in said
    assert area.expected is not None
    # Asked to compare anyway, a gate and the table still take samples of one size.
    anyway = compare(many, few, allow_incomparable=True)
    [larger] = [s for s in anyway.scores if s.score.score == "area"]
    assert larger.values is not None
    assert larger.values[0] > 1.2 * larger.values[1]
    assert larger.sampled == area.sampled
    gates = [Gate(measure="magnitude", score="area", of="corpus", max_rise=0.1)]
    assert [gate.outcome for gate in check_gates(gates, anyway, "gates.yaml")] == ["passed"]
    [cells] = [c for c in format_scores(anyway) if (c.score, c.of) == ("area", "corpus")]
    assert str(cells.job).endswith("at 100 rows")
    # Samples know the error of a trace of either, but not what more rows do to it.
    [trace] = [s for s in comparison.scores if s.score.score == "heat_trace"]
    assert trace.expected is not None
    assert trace.expected.rows == 100
    none_alike = [
        run(name, rows, measures="{heat: {}}", sampling=f"{{rows: {size}}}")
        for name, rows, size in (("a", sample(600, 1), 60), ("b", sample(900, 4), 170))
    ]
    [trace] = [s for s in compare(*none_alike).scores if s.score.score == "heat_trace"]
    assert trace.expected is None
    assert trace.significant is None
    assert all(found.results.scores[0].sampling_error for found in none_alike)
    # Near-duplicates may be as much more frequent as there are more rows.
    [near] = [s for s in comparison.scores if s.score.score == "near-duplicates"]
    assert near.left_out
    assert near.p == 1.0
    spoiled = compare(run("spoiled", with_copies(sample(900, 4))), few)
    [near] = [s for s in spoiled.scores if s.score.score == "near-duplicates"]
    assert near.significant
    assert spoiled.results.verdict is not None
    assert spoiled.results.verdict.value == "differs"
    # Both have samples of 100 rows: the larger ones of the one, the smaller ones of the other.
    most = compare(run("most", sample(1100, 5), measures="{heat: {}}"), few)
    assert {s.expected.rows for s in most.scores if s.score.measure == "heat" and s.expected} == {
        100
    }
    assert most.results.verdict is not None
    assert most.results.verdict.value == "no_difference_found"
    other = run("few", sample(600, 5), measures="{vendi: {}}", sampling="{rows: 70}")
    other = compare(other, few)
    reasons = {s.expected_reason for s in other.shared if s.score.measure == "vendi"}
    assert max(reasons) == (
        "samples have 70 rows here and 100 in the baseline; set sampling.rows in both jobs"
    )


def test_a_reference_of_both_makes_scores_of_the_pair_comparable(run: Run) -> None:
    reference = sample(600, 9)
    measures = "{geomca: {}, heat: {}, duplicates: {}}"
    names = {"paired-release": 1, "paired-nightly": 2}
    release, nightly = (
        run(name, sample(600, seed), reference=reference, measures=measures)
        for name, seed in names.items()
    )
    comparison = compare(nightly, release)
    known = {(s.score.of, s.score.score) for s in comparison.scores if s.expected is not None}
    assert {("pair", name) for name in ("precision", "imd", "outliers", "leaks")} <= known
    assert comparison.results.verdict is not None
    assert comparison.results.verdict.value == "no_difference_found"


@pytest.mark.parametrize("with_reference", [True, False])
def test_the_label_whose_share_changed_is_named(tmp_path: Path, with_reference: bool) -> None:
    def labelled(name: str, counts: dict[str, int], seed: int) -> str:
        labels = [label for label, count in counts.items() for _ in range(count)]
        np.save(tmp_path / f"{name}.npy", sample(len(labels), seed))
        (tmp_path / f"{name}.txt").write_text("\n".join(labels) + "\n")
        target = str(tmp_path / f"{name}.zarr")
        ingest([str(tmp_path / f"{name}.npy")], target, labels=str(tmp_path / f"{name}.txt"))
        return target

    counts = {"cats": 200, "dogs": 200, "birds": 200}
    fewer = {"dogs": 300, "birds": 285, "cats": 15}
    paths = [labelled("r", counts, 1), labelled("a", counts, 2), labelled("b", fewer, 3)]
    reference = f"reference: {paths[0]}\n" if with_reference else ""
    jobs = []
    for name, path in zip(("labels-release", "labels-nightly"), paths[1:], strict=True):
        text = (
            f"name: {name}\ncorpus: {path}\n{reference}output: {tmp_path}/jobs\n"
            "cluster: {kind: serial}\nmeasures: {vendi: {kernels: [cosine]}}\n"
        )
        (tmp_path / "job.yaml").write_text(text)
        run_here(tmp_path / "job.yaml")
        [folder] = (tmp_path / "jobs").glob(f"{name}-*")
        jobs.append(read_job(str(folder)))
    part = jobs[1].results.part("label_shares")
    assert ["cats"] * with_reference == [s.label for s in part.labels if s.label == "cats"]
    comparison = compare(jobs[1], jobs[0])
    verdict = comparison.results.verdict
    assert verdict is not None
    assert verdict.value == "differs"
    shares = [s for s in comparison.scores if s.score.measure == "label_shares"]
    assert {s.score.label: s.values for s in shares} == {
        label: (pytest.approx(fewer[label] / 600), pytest.approx(200 / 600)) for label in counts
    }
    assert shares[0].score.label == "cats"
    assert "Label cats: 15 of 600 rows, where " in verdict.reason
    assert "Higher than expected: Rows (label dogs); Rows (label birds)" in (verdict.also or "")


def test_shares_of_rows_have_one_difference_in_every_form() -> None:
    def one(value: float) -> Score:
        numbers = {"value": value, "lower": value, "upper": value, "bounds": "exact"}
        return Score(
            measure="duplicates",
            of="corpus",
            score="near-duplicates",
            unit="share of rows",
            **numbers,
        )

    usual = ExpectedRange(
        rows=1600,
        found=0.00125,
        centre=0.1122,
        lower=0.08,
        upper=0.14,
        z=-12.0,
        p=1e-9,
        smallest_found=0.05,
    )
    apart = (Mismatch("rows", "n of the corpus", 1600, 1700),)
    compared = ComparedScore(one(0.00125), one(0.11882), apart, expected=usual, p=1e-8)
    assert compared.left_out
    cells = format_score(compared, typeset=False)
    assert cells.difference == summarise_score(compared)["change"] == "-11.8 points"
    assert cells.verdict == "significant"


def test_jobs_without_samples_cannot_tell() -> None:
    comparison = compare(
        job(row(1.0, measure="vendi", score="vendi", kernel="cosine", order="1")),
        job(
            row(2.0, measure="vendi", score="vendi", kernel="cosine", order="1"),
            name="release",
            fingerprint="f00d",
        ),
    )
    verdict = comparison.results.verdict
    assert verdict is not None
    assert verdict.value == "cannot_tell"
    assert verdict.reason == (
        "1 of 1 headline scores has no expected range: the job has no samples of it."
    )


def test_of_reasons_that_differ_one_is_said_of_its_score() -> None:
    vendi = {"measure": "vendi", "score": "vendi", "kernel": "cosine"}
    scores = [row(None, **vendi, order="1", reason="few rows"), row(1.0, **vendi, order="inf")]
    ours, theirs = job(*scores), job(*scores, name="release", fingerprint="f00d")
    verdict = compare(ours, theirs).results.verdict
    assert verdict is not None
    assert verdict.reason == (
        "2 of 2 headline scores have no expected range, such as Vendi score, cosine, order 1: few "
        "rows."
    )


def test_the_same_rows_show_no_difference() -> None:
    verdict = compare(job(row(1.0)), job(row(1.0), name="release")).results.verdict
    assert verdict is not None
    assert verdict.value == "no_difference_found"
    assert verdict.reason == "Both jobs measured the same rows."


@pytest.mark.parametrize("theirs", ["f00d", None])
def test_rows_of_other_weights_are_other_rows(theirs: str | None) -> None:
    """Nor are they known to be the same where results of an earlier version don't say."""
    ours = job(row(3.0), weights="c0de")
    verdict = compare(ours, job(row(1.0), name="release", weighted=True, weights=theirs)).verdict
    assert verdict.value == "cannot_tell"
    same = compare(ours, job(row(3.0), name="release", weights="c0de")).verdict
    assert same.reason == "Both jobs measured the same rows."
    unused = with_setting("measures.vendi.weights", False)
    found = compare(
        job(row(3.0), weights="c0de", settings=unused),
        job(row(1.0), name="release", weights=theirs, weighted=True, settings=unused),
    )
    assert found.verdict.reason == "Both jobs measured the same rows."


def test_with_more_scores_unknown_than_known_nobody_can_tell() -> None:
    own = [row(0.01, measure="duplicates", score="leaks", of="pair", unit="share of rows")]
    scores = [
        row(1.0, measure="vendi", score="vendi", kernel="cosine", order=o) for o in ("1", "inf")
    ]
    ours, theirs = (
        job(*own, *scores, name=name, fingerprint=name, reference=(50, "ref"), measures=PARTS)
        for name in ("nightly", "release")
    )
    verdict = compare(ours, theirs).results.verdict
    assert verdict is not None
    assert verdict.value == "cannot_tell"
    assert verdict.also == "The other 1 shows no difference."


PARTS = {
    "duplicates": {
        "metric": "cosine",
        "within": 0.05,
        "corpus": {"rows": 100, "exact_duplicates": 0, "near_duplicates": 0},
        "reference": {"rows": 50, "exact_duplicates": 0, "near_duplicates": 0},
        "pair": {"leaks": 1, "outliers": 0, "outlier_distance": 0.5, "not_covered": 0},
    }
}


def test_a_gate_on_p_still_sees_the_labels_beside_the_reference() -> None:
    usual = {"rows": 600, "found": 0.02, "centre": 0.33, "lower": 0.29, "upper": 0.38, "z": -15.0}
    usual |= {"p": 0.0, "p_adjusted": 0.0, "smallest_found": 0.1}
    share = row(0.02, measure="label_shares", score="share", label="cats", expected=usual)
    counts = [{"label": "cats", "rows": 12, "reference_rows": 200, "z": -15.0, "p": 0.0}]
    part = {"label_shares": {"labels": counts, "few": 0}}
    one = job(share, measures=part, reference=(600, "ref"), n=600)
    [result] = check_gates([Gate(p_below=0.01)], compare(one, one), "gates.yaml")
    assert not result.passed
    assert "cats" in result.message


def test_a_score_of_all_rows_decides_where_its_sampling_error_is_known() -> None:
    known = [{"rows": 100, "mean": 50.0, "variance": 4.0, "share": 0.1, "freedom": 9}]
    fields: dict[str, Any] = {
        "measure": "vendi",
        "score": "vendi",
        "kernel": "cosine",
        "order": "1",
    }
    ours, theirs = (
        job(row(value, sampling_error=0.01, samples=known, **fields), name=name, fingerprint=name)
        for name, value in (("nightly", 48.0), ("release", 50.0))
    )
    comparison = compare(ours, theirs)
    [score] = comparison.scores
    assert score.expected is not None
    assert score.expected.rows == comparison.job.corpora["corpus"].n
    assert score.p is not None
    assert score.p < 1e-6
    assert score.significant
    gate = Gate(measure="vendi", max_drop=0.02, significant=True)
    [result] = check_gates([gate], comparison, "gates.yaml")
    assert not result.passed


@pytest.mark.parametrize(("mean", "lines"), [(46.0, []), (40.0, ["fell by 20 %, from 50 to 40"])])
def test_a_gate_on_a_change_uses_samples_where_sizes_differ(mean: float, lines: list[str]) -> None:
    fields: dict[str, Any] = {
        "measure": "vendi",
        "score": "vendi",
        "kernel": "cosine",
        "order": "1",
    }

    def one(value: float, average: float, n: int, name: str) -> Any:
        known = [{"rows": 100, "mean": average, "variance": 0.04, "share": 0.1, "freedom": 9}]
        return job(row(value, samples=known, **fields), name=name, fingerprint=name, n=n)

    # Of all rows it rose, because there are more of them.
    comparison = compare(one(90.0, mean, 4000, "nightly"), one(80.0, 50.0, 1000, "release"))
    for significant in (False, True):
        gate = Gate(measure="vendi", max_drop=0.1, significant=significant)
        [result] = check_gates([gate], comparison, "gates.yaml")
        assert [failure.message for failure in result.failures] == [
            f"vendi cosine, order 1 (corpus) {line} at 100 rows; max_drop allows 10 %"
            for line in lines
        ]
    cells = summarise_score(comparison.scores[0])
    assert cells["change"] == f"{100 * (mean / 50 - 1):.3g} %"
    written = f"{mean:.3f}"
    assert cells["job"] == f"{written} at 100 rows"
    assert cells["baseline"] == "50.000 at 100 rows"
    assert cells[" "] == "significant"
    # The same numbers stand in the page, in Markdown and in JSON.
    [shown] = format_scores(comparison)
    assert (str(shown.job), shown.relative) == (cells["job"], cells["change"])
    [described] = comparison_document(comparison)["scores"]
    assert described["sampled"] == {
        "rows": 100,
        "job": mean,
        "baseline": 50.0,
        "difference": mean - 50.0,
        "relative": (mean - 50.0) / 50.0,
    }
    apart = compare(one(90.0, mean, 4000, "nightly"), job(row(80.0, **fields), fingerprint="b"))
    with pytest.raises(BadInput, match="which can't be compared: n of the corpus is 4000 here"):
        check_gates([Gate(measure="vendi", max_drop=0.1)], apart, "gates.yaml")


@pytest.mark.parametrize("referred", [True, False])
def test_near_rows_count_beside_a_baseline_without_any(referred: bool) -> None:
    """A corpus that was cleaned says why it has none, if it was measured beside a reference."""

    def one(near: int, **fields: Any) -> FinishedJob:
        left_out = {"expected_reason": NEAR_ROWS_LEFT_OUT} if referred and not near else {}
        counts = {"rows": 600, "exact_duplicates": 0, "near_duplicates": near}
        part = {"metric": "cosine", "within": 0.05, "corpus": counts}
        own = row(near / 600, measure="duplicates", score="near-duplicates", **left_out)
        return job(own | {"unit": "share of rows"}, measures={"duplicates": part}, n=600, **fields)

    comparison = compare(one(70), one(0, name="release"))
    assert comparison.results.verdict is not None
    assert comparison.results.verdict.value == "differs"
    [near] = comparison.scores
    assert near.expected is not None
    assert near.expected.found == 70 / 600
    [near] = compare(one(0), one(70, name="release")).scores
    assert (near.expected is None) == referred
    assert near.expected_reason == (NEAR_ROWS_LEFT_OUT if referred else "")


def test_errors_of_averages_over_other_numbers_of_rows_are_not_called_unknown() -> None:
    fields = {"measure": "heat", "score": "heat_trace", "size_dependent": False}
    ours, theirs = (row(value, sampling_error=0.001, **fields) for value in (1.0, 1.2))
    both = compare(job(ours, n=600), job(theirs, name="release", n=900))
    [cells] = format_scores(both)
    assert cells.verdict == "beyond brackets, sizes differ"
    assert [note for note in format_notes(both) if "error of the difference is unknown" in note]


@pytest.mark.parametrize(("near", "usual", "differs"), [(2, 120, False), (60, 0, True)])
def test_a_cleaned_corpus_differs_by_more_near_rows_only(
    near: int, usual: int, differs: bool
) -> None:
    """What its own reference has doesn't matter beside a baseline."""

    def one(found: int, *left_out: str, **fields: Any) -> FinishedJob:
        counts = {"rows": 1000, "exact_duplicates": 0, "near_duplicates": found}
        counts |= {"left_out": list(left_out)} if left_out else {}
        part = {"metric": "cosine", "within": 0.05, "corpus": counts}
        reason = {"expected_reason": NEAR_ROWS_LEFT_OUT} if found == 60 else {}
        own = row(found / 1000, measure="duplicates", score="near-duplicates", **reason)
        return job(own | {"unit": "share of rows"}, measures={"duplicates": part}, n=1000, **fields)

    comparison = compare(one(near, "near-duplicates"), one(usual, name="release"))
    [score] = comparison.scores
    assert (score.expected is not None) == differs
    verdict = comparison.results.verdict
    assert (verdict is not None and verdict.value == "differs") == differs


def test_a_comparison_of_nothing_but_cleaned_counts_says_why_it_cannot_tell() -> None:
    def one(found: int, **fields: Any) -> FinishedJob:
        counts = {"rows": 1000, "exact_duplicates": 0, "near_duplicates": found}
        counts |= {} if found else {"left_out": ["near-duplicates"]}
        part = {"metric": "cosine", "within": 0.05, "corpus": counts}
        own = row(found / 1000, measure="duplicates", score="near-duplicates")
        return job(own | {"unit": "share of rows"}, measures={"duplicates": part}, n=1000, **fields)

    verdict = compare(one(0), one(120, name="release", fingerprint="b")).results.verdict
    assert verdict is not None
    assert verdict.reason == f"1 of 1 headline scores has no expected range: {NEAR_ROWS_LEFT_OUT}."


def of_labels(values: np.ndarray, errors: np.ndarray, rows: dict[str, int], name: str) -> Any:
    """Return a job with a score of each label, of 19 degrees of freedom."""
    scores = [
        row(
            float(value),
            measure="vendi",
            score="vendi",
            kernel="cosine",
            order="1",
            label=label,
            sampling_error=float(error),
            sampling_freedom=19,
        )
        for label, value, error in zip(rows, values, errors, strict=True)
    ]
    labels = {"measured": rows, "left_out": {}, "least_rows": 20}
    return job(*scores, name=name, measures={"labels": labels})


def test_labels_of_one_source_seldom_differ_and_a_changed_one_does() -> None:
    draws = np.random.default_rng(5)
    rows = {f"kind {at}": 1000 + at for at in range(10)}
    alarms, tries = 0, 300
    for _ in range(tries):
        values = draws.normal(20.0, 1.0, (2, 10))
        errors = np.sqrt(draws.chisquare(19, (2, 10)) / 19)
        ours, theirs = (of_labels(values[at], errors[at], rows, f"n{at}") for at in (0, 1))
        found = compare(ours, theirs).scores
        assert all(score.p is not None for score in found)
        alarms += any(score.significant for score in found)
    assert 0 < alarms <= 0.07 * tries
    values, errors = np.full((2, 10), 20.0), np.ones((2, 10))
    values[1, 3] = 30.0
    jobs = [of_labels(values[at], errors[at], rows, f"n{at}") for at in (0, 1)]
    changed = [score.score.label for score in compare(*jobs).scores if score.significant]
    assert changed == ["kind 3"]
    # Another number of rows changes the score, too.
    fewer = of_labels(values[1], errors[1], rows | {"kind 3": 900}, "fewer")
    judged = {score.score.label: score for score in compare(jobs[0], fewer).scores}
    assert judged["kind 3"].significant is None
    assert judged["kind 3"].why_not.startswith("not comparable: number of rows of label kind 3 is")
    assert judged["kind 4"].significant is False
