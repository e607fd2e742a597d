"""Scores of single labels, compared by the rows and scales of these."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.compare.gate_checks import try_gates
from latentscale_pipeline.compare.gates import Drift, Gate
from latentscale_pipeline.compare.jobs import Comparison, compare
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.measures.finished_job import FinishedJob, read_job
from latentscale_pipeline.report.control_chart import JobOfSeries
from latentscale_pipeline.views.formatting import label_name
from tests.support.jobs import run_here

MEASURES = (
    "{vendi: {kernels: [cosine, rbf], orders: [1]}, magnitude: {},"
    " duplicates: {metric: euclidean, within: 0.01}}"
)

Run = Callable[..., FinishedJob]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a job on rows of two kinds, the second one wider; the kinds may be swapped."""
    folder = tmp_path_factory.mktemp("labels")

    known: dict[str, FinishedJob] = {}

    def run(name: str, seed: int, a: int = 120, b: int = 150, **keys: Any) -> FinishedJob:
        if name in known:
            return known[name]
        generator = np.random.default_rng(seed)
        rows = generator.normal(size=(a + b, keys.get("d", 8)))
        rows[a:] = 3.0 * rows[a:] + 2.0
        names = ["B", "A"] if keys.get("swapped") else ["A", "B"]
        np.save(folder / f"{name}.npy", rows.astype("f4"))
        (folder / f"{name}.txt").write_text(
            "".join(f"{each}\n" for each, n in zip(names, (a, b), strict=True) for _ in range(n))
        )
        corpus, labels = str(folder / f"{name}.zarr"), str(folder / f"{name}.txt")
        ingest([str(folder / f"{name}.npy")], corpus, labels=labels)
        (folder / f"{name}.yaml").write_text(
            f"name: {name}\ncorpus: {corpus}\noutput: {folder}/jobs\ngroup_by: labels\n"
            f"measures: {keys.get('measures', MEASURES)}\n"
            "cluster: {kind: serial}\n"
        )
        run_here(folder / f"{name}.yaml")
        [made] = (folder / "jobs").glob(f"{name}-????????")
        return known.setdefault(name, read_job(str(made)))

    return run


def of_label(found: Comparison, label: str, **wanted: str) -> Any:
    [score] = [
        each
        for each in found.scores
        if each.score.label == label
        and all(getattr(each.score, name) == value for name, value in wanted.items())
    ]
    return score


def outcome(found: Comparison, **gate: Any) -> tuple[str, str]:
    [result] = try_gates([Gate(**gate)], found, "gates.yaml")
    return result.outcome, result.message


COSINE = {"measure": "vendi", "kernel": "cosine"}
RBF = {"measure": "vendi", "kernel": "rbf median"}


def test_rows_of_the_label_decide_and_not_those_of_the_corpus(run: Run) -> None:
    usual = run("usual", 1)
    assert {each.rows for each in usual.scores if each.label == "A"} >= {120}
    fewer = compare(run("fewer", 2, a=60, b=210), usual)
    score = of_label(fewer, "A", **COSINE)
    assert [str(each) for each in score.mismatches] == [
        "number of rows of label A is 60 here and 120 in the baseline"
    ]
    assert outcome(fewer, **COSINE, label="A", max_drop=0.9)[0] == "unchecked"
    # As many rows of the label, in a corpus of another size.
    larger = compare(run("larger", 3, b=190), usual)
    assert of_label(larger, "A", **COSINE).p is not None
    assert of_label(larger, "B", **COSINE).mismatches
    assert outcome(larger, **COSINE, label="A", max_drop=0.9)[0] == "passed"


def test_a_vendi_score_of_a_tenth_more_rows_is_judged_with_what_they_may_add(run: Run) -> None:
    usual = run("usual", 1)
    more = compare(run("more", 5, a=128), usual)
    score = of_label(more, "A", **COSINE)
    assert not score.mismatches
    expected = score.expected
    value = score.baseline.value
    width = (expected.upper - expected.lower) - value * (128 / 120 - 1)
    assert expected.lower == pytest.approx(value - width / 2)
    assert expected.upper == pytest.approx(value * 128 / 120 + width / 2)
    assert score.p > 0.05
    # The wider rows are another kind: far more than seven in a hundred rows can add.
    narrow = compare(run("swapped-more", 6, a=150, b=128, swapped=True), usual)
    assert of_label(narrow, "A", **COSINE).significant
    # Nothing is known of how other scores grow.
    other = of_label(more, "A", measure="duplicates", score="near-duplicates")
    assert other.p is None
    assert other.expected_reason == "its label has 128 rows here and 120 in the baseline"


@pytest.mark.parametrize("rows", [297, 303, 306])
def test_labels_of_one_source_with_a_few_rows_more_or_fewer_do_not_differ(
    run: Run, rows: int
) -> None:
    # Isotropic rows in as many dimensions: the score of order 0.1 rises by nearly 1 a row.
    measures = "{vendi: {kernels: [cosine], orders: [0.1, 1, inf]}}"
    usual = run("wide", 20, a=300, b=300, d=384, measures=measures)
    found = compare(run(f"wide-{rows}", rows, a=rows, b=300, d=384, measures=measures), usual)
    for order in ("0.1", "1", "inf"):
        assert not of_label(found, "A", **COSINE, order=order).significant
        gates = {"max_drop": 0.001, "max_rise": 0.001, "significant": True}, {"p_below": 0.05}
        for gate in gates:
            assert outcome(found, **COSINE, order=order, label="A", **gate)[0] == "passed"


def test_a_change_of_a_label_fails_its_gate_and_is_named(run: Run) -> None:
    swapped = compare(run("swapped", 4, a=150, b=120, swapped=True), run("usual", 1))
    score = of_label(swapped, "A", **COSINE)
    assert score.significant
    assert score.score.label == "A"
    assert score.expected.rows == 120
    assert score.expected.p < score.p <= 0.05
    for gate in ({}, {"label": "A"}):
        said, message = outcome(swapped, **COSINE, p_below=0.05, **gate)
        assert (said, "label A" in message) == ("failed", True)
    [note] = [each for each in swapped.notes if "single labels" in each]
    assert note.startswith("2 of 2 scores of single labels changed by more than chance")
    assert "vendi cosine, order 1, label A (corpus)" in note


def test_scales_of_a_label_are_those_of_its_rows(run: Run) -> None:
    usual, other = run("usual", 1), run("swapped", 4, a=150, b=120, swapped=True)
    known = [each.results.part("labels").scales["A"]["vendi"] for each in (usual, other)]
    [name] = [each for each in known[0] if "rbf" in each]
    rows = np.load(str(Path(usual.url).parents[1] / "usual.npy"))[:120].astype(float)
    apart = np.sqrt(np.square(rows[:, None] - rows[None]).sum(axis=2))[np.triu_indices(120, 1)]
    assert known[0][name] == pytest.approx(np.median(apart), rel=1e-3)
    score = of_label(compare(other, usual), "A", **RBF)
    [mismatch] = score.mismatches
    assert (mismatch.kind, mismatch.job, mismatch.baseline) == (
        "own scale",
        known[1][name],
        known[0][name],
    )
    assert str(mismatch).startswith(f"{name} of label A is ")
    # The same vectors have the scale of the corpus, and a swapped label another one.
    relabelled = compare(run("relabelled", 1, swapped=True), usual)
    assert of_label(relabelled, "A", **RBF).mismatches
    assert not compare(usual, usual).mismatches


def test_vectors_of_other_labels_are_not_the_same_rows(run: Run) -> None:
    usual = run("usual", 1)
    verdict = compare(run("relabelled", 1, swapped=True), usual).verdict
    assert verdict.value == "differs" or "labels of their rows differ" in verdict.reason
    assert compare(usual, usual).verdict.reason == "Both jobs measured the same rows."


def test_limits_of_a_label_are_those_of_as_many_of_its_rows(run: Run) -> None:
    nights = [run(f"night{at}", 10 + at, measures="{vendi: {orders: [1]}}") for at in range(6)]
    earlier = [JobOfSeries(270, None, each.scores, each.measure_settings) for each in nights]
    gate = Gate(measure="vendi", kernel="cosine", label="A", drift=Drift())

    def check(job: FinishedJob) -> tuple[str, str]:
        [result] = try_gates([gate], compare(job, job), "gates.yaml", earlier)
        return result.outcome, result.remark

    fewer = run("fewer", 2, a=60, b=210)
    assert check(fewer)[1].startswith(
        "no limits for vendi cosine, order 1, label A (corpus): fewer"
    )
    larger = run("larger", 3, b=190)
    assert check(larger) == ("passed", "6 earlier jobs")
    swapped = run("swapped", 4, a=150, b=120, swapped=True)
    assert check(swapped)[0] == "failed"


def test_a_reason_names_what_keeps_a_label_from_being_judged(run: Run) -> None:
    found = compare(run("other", 5), run("usual", 1))
    score = of_label(found, "A", measure="duplicates", score="near-duplicates")
    assert score.significant is None
    assert score.why_no_error == "its sampling error isn't known, or not well enough to compare"


def test_blanks_at_the_ends_of_a_label_are_seen() -> None:
    assert [label_name(each) for each in ("a", "a ", " a", "")] == ["a", '"a "', '" a"', "(none)"]


def test_a_gate_fails_by_what_it_can_compare(run: Run) -> None:
    fewer = compare(run("fewer", 2, a=60, b=210), run("usual", 1))
    [result] = try_gates([Gate(label="A", max_drop=0.3)], fewer, "gates.yaml")
    assert result.outcome == "failed"
    assert result.message.startswith("label_shares share (label A) (corpus) fell by ")
    assert result.remark.endswith("can't be compared")
    assert outcome(fewer, label="A", max_drop=0.9)[0] == "unchecked"


def written_before(found: FinishedJob) -> FinishedJob:
    """Return a job as an earlier version wrote it: scores of labels don't say their rows."""
    scores = [each.model_copy(update={"rows": None}) for each in found.results.scores]
    measures = {name: part for name, part in found.results.measures.items() if name != "labels"}
    results = found.results.model_copy(update={"scores": scores, "measures": measures})
    return FinishedJob(found.url, results, found.settings)


def with_value(found: FinishedJob, value: float | None, **wanted: Any) -> FinishedJob:
    """Return a job in which one cosine score has another value, or none."""
    bracket = {"value": value, "lower": value, "upper": value}
    bracket |= {"reason": "broken"} if value is None else {}
    scores = [
        each.model_copy(update=bracket)
        if (each.kernel, each.label) == ("cosine", wanted.get("label"))
        else each
        for each in found.results.scores
    ]
    results = found.results.model_copy(update={"scores": scores})
    return FinishedJob(found.url, results, found.settings)


def test_scores_of_labels_cost_those_of_all_rows_no_power(run: Run) -> None:
    usual, other = run("usual", 1), run("other", 5)
    [score] = [s for s in other.scores if (s.kernel, s.label) == ("cosine", None)]
    [theirs] = [s for s in usual.scores if (s.kernel, s.label) == ("cosine", None)]
    assert None not in (theirs.value, theirs.sampling_error, score.sampling_error)
    # Beyond 5 % alone, and not among three.
    error = np.hypot(theirs.sampling_error, score.sampling_error)
    moved = compare(with_value(other, theirs.value + 2.2 * error), usual)
    p = next(
        s for s in moved.scores if (s.score.kernel, s.score.label) == ("cosine", None)
    ).expected
    assert p is not None
    assert 0.05 / 3 < p.p < 0.05
    said, message = outcome(moved, **COSINE, p_below=0.05)
    assert said == "failed"
    assert message.startswith("vendi cosine, order 1 (corpus) is ")


def test_rows_that_an_earlier_version_did_not_write_are_those_of_the_corpora(run: Run) -> None:
    usual, fewer = run("usual", 1), run("fewer", 2, a=60, b=210)
    larger = run("larger", 3, b=190)
    for pair in ((larger, written_before(usual)), (written_before(larger), usual)):
        score = of_label(compare(*pair), "A", **COSINE)
        assert str(score.mismatches[0]) == "n of the corpus is 310 here and 270 in the baseline"
    assert not of_label(compare(fewer, written_before(usual)), "A", **COSINE).mismatches
    # A history that an earlier version wrote keeps its limits.
    gate = Gate(**COSINE, label="A", drift=Drift())
    nights = [written_before(run(f"night{at}", 10 + at, measures="{vendi: {}}")) for at in range(6)]
    earlier = [JobOfSeries(270, None, each.scores) for each in nights]
    swapped = run("swapped", 4, a=150, b=120, swapped=True)
    [result] = try_gates([gate], compare(swapped, swapped), "gates.yaml", earlier)
    assert (result.outcome, result.remark) == ("failed", "6 earlier jobs")
    [result] = try_gates([gate], compare(larger, larger), "gates.yaml", earlier)
    assert result.remark.startswith("no limits for vendi cosine, order 1, label A (corpus): fewer")


def test_a_null_score_or_drift_fails_a_gate_beside_what_cannot_be_judged(run: Run) -> None:
    usual, other = run("usual", 1), run("other", 5)
    broken = compare(with_value(other, None, label="A"), usual)
    said, message = outcome(broken, measure="vendi", label="A", p_below=0.05)
    assert (said, "it is null: broken" in message) == ("failed", True)
    nights = [run(f"night{at}", 10 + at, measures="{vendi: {}}") for at in range(6)]
    earlier = [JobOfSeries(270, None, each.scores) for each in nights]
    swapped = run("swapped", 4, a=150, b=120, swapped=True)
    against = compare(swapped, run("fewer", 2, a=60, b=210))
    gate = Gate(**COSINE, label="A", drift=Drift(), max_drop=0.99)
    [result] = try_gates([gate], against, "gates.yaml", earlier)
    assert result.outcome == "failed"
    assert outcome(against, label="A", min=1e6, max_drop=0.99, severity="warn")[0] == "unchecked"


def test_labels_that_differ_are_counted_in_one_line(run: Run) -> None:
    found = compare(run("fewer", 2, a=60, b=210), run("usual", 1))
    assert [line for line in found.describe_mismatches() if "label" in line] == [
        "the numbers of rows of 2 labels differ"
    ]
