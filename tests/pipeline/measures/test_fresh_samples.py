"""Expected ranges and verdicts of jobs: scores of known samples, and what is decided by them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.corpus.ingest.create import ingest
from latentscale_pipeline.engine.keys import stage_code
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.jobs.plan import make_plan, measure_sections
from latentscale_pipeline.measures import fresh_samples
from latentscale_pipeline.measures.base import CorpusFacts, JobFacts, Role
from latentscale_pipeline.measures.fresh_samples import SampleSizes, plan_samples, sample_sizes
from latentscale_pipeline.measures.registry import MEASURES
from tests import oracles
from tests.support.jobs import results_of, run_here

CENTRES = np.random.default_rng(3).normal(size=(6, 10))


def sample(n: int, seed: int, *, kinds: int = 6, spread: float = 0.3) -> np.ndarray:
    """Draw rows around the first ``kinds`` centres."""
    generator = np.random.default_rng([n, seed])
    rows = CENTRES[generator.integers(kinds, size=n)] + spread * generator.normal(size=(n, 10))
    return rows.astype("f4")


def vendi(rows: np.ndarray, order: float) -> float:
    unit = rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)
    return oracles.hill_number(np.linalg.eigvalsh(unit.T @ unit / len(rows)), order)


def job(
    folder: Path, rows: np.ndarray, beside: np.ndarray | None, measures: str, **keys: str
) -> dict[str, Any]:
    np.save(folder / "corpus.npy", rows)
    settings = {"corpus": f"{folder}/corpus.npy", "output": f"{folder}/jobs", **keys}
    if beside is not None:
        np.save(folder / "reference.npy", beside)
        settings["reference"] = f"{folder}/reference.npy"
    text = "".join(f"{key}: {value}\n" for key, value in settings.items())
    (folder / "job.yaml").write_text(
        f"name: v\ncluster: {{kind: serial}}\nmeasures: {measures}\n{text}"
    )
    run_here(folder / "job.yaml")
    return results_of(folder / "jobs")


VENDI = "{vendi: {kernels: [cosine], orders: [1, inf]}}"


def test_what_is_found_is_the_score_of_samples_of_one_size(tmp_path: Path) -> None:
    corpus, reference = sample(300, 1), sample(180, 2)
    results = job(tmp_path, corpus, reference, VENDI, sampling="{samples: 40, rows: 60}")
    generator = np.random.default_rng(5)
    parts = [generator.choice(corpus, 60, replace=False) for _ in range(200)]
    for score in results["scores"]:
        if score["of"] == "reference":
            assert "expected" not in score
            continue
        expected, order = score["expected"], float(score["order"])
        assert expected["rows"] == 60
        own = np.array([vendi(part, order) for part in parts])
        assert abs(expected["found"] - own.mean()) < 4 * own.std() / np.sqrt(40)
        assert [each["rows"] for each in score["samples"]] == [60]
        assert score["samples"][0]["mean"] == expected["found"]
        fresh = np.array([vendi(sample(60, 100 + seed), order) for seed in range(200)])
        # The reference is itself a sample, of three times as many rows.
        middle, reach = expected["centre"], 1.96 * fresh.std()
        assert abs(middle - fresh.mean()) < 3 * fresh.std() / np.sqrt(3)
        width = (expected["upper"] - expected["lower"]) / 2
        assert 0.7 < width / (reach * np.sqrt(1 / 5 + 1 / 3)) < 1.5
        assert 0.5 < score["samples"][0]["variance"] / fresh.var() < 2.0
        # Eight orders of 300 rows, each cut into five samples.
        assert score["samples"][0]["share"] == pytest.approx(1 / 40 + 35 / 40 / 5)
        z = (expected["found"] - middle) / (width / 2.021075)  # Student's, 40 degrees of freedom
        assert expected["z"] == pytest.approx(z, rel=1e-5)


@pytest.mark.parametrize("compares", [True, False])
def test_averages_over_rows_have_the_sampling_error_that_samples_tell(
    tmp_path: Path, compares: bool
) -> None:
    corpora = {"corpus": sample(300, 1), "reference": sample(180, 2)}
    beside = corpora["reference"] if compares else None
    own = job(tmp_path, corpora["corpus"], beside, "{heat: {}}", sampling="{samples: 40, rows: 60}")
    generator = np.random.default_rng(6)
    for score in own["scores"]:
        if score["of"] == "pair":
            assert score["sampling_error"] is None
            assert score["sampling_error_reason"] == ("only that of 60 rows is known, from samples")
            continue
        rows = corpora[score["of"]]
        parts = [generator.choice(rows, 60, replace=False) for _ in range(100)]
        traces = [float(oracles.heat_trace(part, 5, [score["scale"]])[0]) for part in parts]
        # Samples of the same rows differ less than fresh ones.
        fresh = np.var(traces) / (1 - 60 / len(rows))
        assert score["sampling_error"] == pytest.approx(np.sqrt(fresh * 60 / len(rows)), rel=0.4)


def test_a_source_of_fewer_kinds_is_told_apart(tmp_path: Path) -> None:
    measures = "{geomca: {}, vendi: {kernels: [cosine]}}"
    results = job(tmp_path, sample(600, 1, kinds=5), sample(600, 2), measures)
    verdict = results["verdict"]
    assert verdict["value"] == "differs"
    headlines = [s for s in results["scores"] if "p_adjusted" in s.get("expected", {})]
    assert verdict["compared"] == len(headlines) == 6
    assert min(s["expected"]["p_adjusted"] for s in headlines) < 0.01
    assert " expected (p " in verdict["reason"]
    # Holm's smallest adjusted value is the smallest p times the number of scores.
    least = min(headlines, key=lambda s: s["expected"]["p"])["expected"]
    assert least["p_adjusted"] == pytest.approx(min(1, 6 * least["p"]))


def test_two_samples_of_one_source_are_not_told_apart(tmp_path: Path) -> None:
    measures = "{heat: {}, geomca: {}, magnitude: {}, vendi: {}, baselines: {}}"
    results = job(tmp_path, sample(300, 3), sample(300, 4), measures)
    verdict = results["verdict"]
    assert verdict["value"] == "no_difference_found"
    assert verdict["reason"].startswith(f"All {verdict['compared']} headline scores are where a ")
    assert ", corrected for " in verdict["reason"]
    assert verdict["also"].endswith(" would have been found four times in five.")
    without = {
        (s["measure"], s["score"])
        for s in results["scores"]
        if s["of"] != "reference" and "expected" not in s
    }
    assert without <= {("magnitude", "convergence_scale")}, without


def test_what_cannot_be_told_says_why(tmp_path: Path) -> None:
    few = "samples of 50 rows need 100 rows of the corpus and 150 rows of the reference"
    results = job(tmp_path, sample(160, 1), sample(149, 2), VENDI)
    assert results["verdict"]["value"] == "cannot_tell"
    assert results["verdict"]["reason"] == f"2 of 2 headline scores have no expected range: {few}."
    own = [score for score in results["scores"] if score["of"] == "corpus"]
    assert {score["expected_reason"] for score in own} == {few}


def test_without_a_reference_nothing_is_compared(tmp_path: Path) -> None:
    results = job(tmp_path, sample(200, 1), None, VENDI)
    assert results["verdict"] == {
        "value": None,
        "reason": "There is no reference, so nothing says what is usual.",
        "compared": 0,
    }


def test_samples_are_a_choice(tmp_path: Path) -> None:
    results = job(tmp_path, sample(200, 1), sample(200, 2), VENDI, sampling="{method: none}")
    assert results["verdict"]["reason"].endswith("no expected range: sampling.method is none.")
    assert {score["sampling_error"] for score in results["scores"]} == {None}
    whys = {score["sampling_error_reason"] for score in results["scores"]}
    assert whys == {"sampling.method is none"}


def test_a_measure_that_needs_more_rows_than_a_sample_has(tmp_path: Path) -> None:
    measures = "{heat: {k: 60}, vendi: {kernels: [cosine], orders: [1]}}"
    results = job(tmp_path, sample(200, 5), sample(200, 6), measures, sampling="{rows: 50}")
    reasons = {s["measure"]: s.get("expected_reason") for s in results["scores"]}
    assert reasons["vendi"] is None
    assert reasons["heat"].startswith("samples of 50 rows: ")
    assert results["verdict"]["value"] == "cannot_tell"
    assert "2 of 3 headline scores have no expected range" in results["verdict"]["reason"]


def test_weighted_rows_have_no_expected_range(tmp_path: Path) -> None:
    for name, rows in (("corpus", sample(200, 1)), ("reference", sample(200, 2))):
        np.save(tmp_path / f"{name}-rows.npy", rows)
        np.save(tmp_path / "weights.npy", np.linspace(1, 2, 200))
        ingest(
            [f"{tmp_path}/{name}-rows.npy"],
            f"{tmp_path}/{name}.zarr",
            weights=f"{tmp_path}/weights.npy",
        )
    where = {"corpus": f"{tmp_path}/corpus.zarr", "reference": f"{tmp_path}/reference.zarr"}
    measures = "{vendi: {kernels: [cosine], orders: [1], weights: true}}"
    results = job(tmp_path, sample(200, 1), None, measures, **where)
    [own] = [score for score in results["scores"] if score["of"] == "corpus"]
    assert own["expected_reason"] == "samples of weighted rows aren't measured"


def test_the_key_has_the_code_of_the_measure(tmp_path: Path) -> None:
    job(tmp_path, sample(200, 1), sample(200, 2), VENDI)
    text = (tmp_path / "job.yaml").read_text()
    plan = make_plan(read_config(text, "job.yaml", measures=measure_sections()))
    [stage] = [stage for stage in plan.stages if stage.name == "expected-vendi"]
    code = set(stage_code(stage))
    assert {
        "latentscale.sampling.fresh_samples",
        "latentscale_pipeline.measures.vendi.collect",
    } <= code
    assert not {name for name in code if ".heat" in name or name.endswith(".report")}
    # The keys of what runs inside cover the rest.
    assert "vendi-cosine-corpus" in stage.parameters["stages"]


@pytest.mark.parametrize(
    ("kinds", "keys", "code", "message"),
    [
        (6, "", 0, ""),
        (3, "", 1, "differs from its reference: Vendi score, cosine, order "),
        (6, "sampling: {method: none}", 2, "will have no verdict: sampling.method is none"),
    ],
)
def test_a_nightly_command_fails_on_a_difference(
    tmp_path: Path, latentscale: Any, kinds: int, keys: str, code: int, message: str
) -> None:
    np.save(tmp_path / "corpus.npy", sample(300, 7, kinds=kinds))
    np.save(tmp_path / "reference.npy", sample(300, 8))
    (tmp_path / "job.yaml").write_text(
        f"{{name: v, corpus: {tmp_path}/corpus.npy, reference: {tmp_path}/reference.npy, "
        f"output: {tmp_path}/jobs, cluster: {{kind: serial}}, measures: {VENDI}"
        f"{', ' + keys.strip() if keys else ''}}}\n"
    )
    ended = latentscale("run", tmp_path / "job.yaml", "--fail-on-difference", "--quiet")
    assert ended.code == code
    assert message in ended.err
    assert ("report  " in ended.out) == (code < 2), "a job without a verdict isn't run"


@pytest.mark.parametrize(
    ("measures", "rows", "keys", "code", "message"),
    [
        ("mmd", 50, [], 1, "differs from its reference: MMD², rbf "),
        ("mmd", 300, ["sampling.method=none"], 1, "differs from its reference: MMD², rbf "),
        ("modes", 300, ["sampling.method=none"], 1, "differs from its reference: "),
        ("duplicates", 50, [], 1, "differs from its reference: Reference rows not covered: "),
        ("duplicates", 300, ["sampling.method=none"], 2, "will have no verdict: sampling.method"),
        ("hubness", 50, [], 2, "will have no verdict: samples of 50 rows need 100 rows of the "),
        ("mmd", 15, [], 2, "will have no verdict: samples of 50 rows need 100 rows of the "),
        ("modes", 50, [], 2, "will have no verdict: samples of 50 rows need 100 rows of the "),
    ],
)
def test_measures_with_ranges_of_their_own_need_no_samples_for_a_verdict(
    tmp_path: Path, latentscale: Any, measures: str, rows: int, keys: list[str], code: int,
    message: str,
) -> None:  # fmt: skip
    np.save(tmp_path / "corpus.npy", sample(rows, 7, kinds=2))
    np.save(tmp_path / "reference.npy", sample(rows, 8))
    where = (tmp_path / "corpus.npy", "--reference", tmp_path / "reference.npy")
    given = [word for key in keys for word in ("-o", key)]
    arguments = (*where, "--measures", measures, "--output", tmp_path / "jobs", *given)
    ended = latentscale("run", *arguments, "--fail-on-difference", "--quiet")
    assert message in ended.err
    assert ended.code == code, ended.err


@pytest.mark.parametrize(("measures", "code"), [("mmd", 0), ("mmd,hubness", 2)])
def test_nothing_differs_only_where_every_score_has_a_range(
    tmp_path: Path, latentscale: Any, measures: str, code: int
) -> None:
    for seed, role in enumerate(("corpus", "reference")):
        np.save(tmp_path / f"{role}.npy", sample(300, 7 + seed))
    where = (tmp_path / "corpus.npy", "--reference", tmp_path / "reference.npy")
    arguments = (*where, "--measures", measures, "-o", "sampling.method=none")
    arguments += ("--output", tmp_path / "jobs", "--fail-on-difference", "--quiet")
    ended = latentscale("run", *arguments)
    assert ended.code == code, ended.err
    assert ("headline scores have no expected range" in ended.err) == (code == 2)


SIZES: list[tuple[Role, int]] = [("corpus", 250), ("reference", 1000)]


def test_samples_take_every_row_as_often_as_they_can() -> None:
    corpora = {role: CorpusFacts(n, 4, "float32", 1, 1024) for role, n in SIZES}
    facts = JobFacts(corpora, 0, 1e9, "corpus", samples=10, sample_rows=100)
    sizes = sample_sizes(facts)
    assert isinstance(sizes, SampleSizes)
    assert (sizes.rows, sizes.drawn) == (50, {"corpus": 250, "reference": 1000})
    assert sizes.cuts("corpus").counts == [5, 5]
    assert sizes.cuts("reference").counts == [6, 4]
    # Ten samples in two orders of 250 rows; twenty, of 1000.
    assert sizes.share("corpus") == pytest.approx(0.1 + 0.5 * 0.2)
    assert sizes.share("reference") == pytest.approx(0.05 + (1 - (12**2 + 8**2) / 400) * 0.05)


@pytest.mark.parametrize(
    ("n", "wanted", "rows"),
    [(120, 1000, 50), (1200, 1000, 200), (1200, 230, 230), (4999, 1000, 500), (10**6, 1000, 1000)],
)
def test_small_corpora_have_samples_of_round_numbers_of_rows(
    n: int, wanted: int, rows: int
) -> None:
    corpora: dict[Role, CorpusFacts] = {"corpus": CorpusFacts(n, 4, "float32", 1, 1024)}
    facts = JobFacts(corpora, 0, 1e9, "corpus", samples=10, sample_rows=wanted)
    sizes = sample_sizes(facts)
    assert isinstance(sizes, SampleSizes)
    assert sizes.rows == rows


def test_corpora_of_different_dimensions_are_not_compared(tmp_path: Path) -> None:
    results = job(tmp_path, sample(200, 1)[:, :8], sample(200, 2), VENDI)
    assert results["verdict"]["reason"].endswith(
        ": the corpus has 8 dimensions and the reference 10."
    )


def test_a_sample_that_cannot_be_measured_costs_the_range_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise BadInput("rows: none of them will do")

    monkeypatch.setattr(fresh_samples, "run_in_memory", fail)
    results = job(tmp_path, sample(200, 1), sample(200, 2), VENDI)
    [own, _] = [score for score in results["scores"] if score["of"] == "corpus"]
    assert own["expected_reason"] == "a sample of 50 rows: rows: none of them will do"
    assert own["value"] == pytest.approx(vendi(sample(200, 1), 1), rel=1e-9)
    assert results["verdict"]["value"] == "cannot_tell"


@pytest.mark.parametrize(
    "measures", ["{vendi: {method: subsample}}", "{magnitude: {method: nystrom}}"]
)
def test_methods_for_many_rows_do_not_stop_samples(measures: str) -> None:
    text = f"{{name: v, corpus: c, reference: r, measures: {measures}}}"
    config = read_config(text, "job.yaml", measures=measure_sections())
    corpus = CorpusFacts(20_000, 8, "float32", 20, 1024)
    corpora: dict[Role, CorpusFacts] = {"corpus": corpus, "reference": corpus}
    facts = JobFacts(corpora, 0, 2e11, "reference", samples=10, sample_rows=1000)
    [*_, stage, fewer, fewest] = plan_samples(MEASURES, config.measures, facts)
    assert stage.name.startswith("expected-")
    assert fewer.name.startswith("sampled-500-")
    assert fewest.name.startswith("sampled-50-")


def test_a_corpus_beside_itself_cannot_tell(tmp_path: Path) -> None:
    results = job(tmp_path, sample(200, 1), sample(200, 1), VENDI)
    assert results["verdict"]["value"] == "cannot_tell"
    assert results["verdict"]["reason"].startswith("Corpus and reference have the same rows, ")


def test_curves_are_expected_where_their_points_are(tmp_path: Path) -> None:
    measures = "{heat: {times: {start: 0.1, stop: 10, count: 9}}, magnitude: {scales: 6}}"
    results = job(tmp_path, sample(300, 1), sample(300, 2), measures)
    rows = {score["score"]: score for score in results["scores"] if score["of"] == "corpus"}
    heat, magnitude = (results["measures"][name] for name in ("heat", "magnitude"))
    trace, expected = heat["chance"], rows["heat_trace"]["expected"]
    assert trace["x"] == heat["corpus"]["times"]
    at = trace["x"].index(rows["heat_trace"]["scale"])
    for end in ("found", "centre", "lower", "upper"):
        assert trace[end][at] == expected[end]
    assert trace["rows"] == expected["rows"]

    function = magnitude["chance"]
    assert function["x"] == magnitude["corpus"]["scales"]
    # All start at 1, and the reference ends near 0.95 of the rows of a sample.
    assert [function[end][0] for end in ("found", "centre", "lower", "upper")] == [1.0] * 4
    assert function["centre"][-1] == pytest.approx(0.95 * function["rows"], rel=0.03)
    ascending = np.diff(function["found"])
    assert (ascending > 0).all()


def test_grey_holds_curves_of_one_source_and_not_of_another(tmp_path: Path) -> None:
    outside = []
    for number, kinds in enumerate((6, 6, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        measures = "{magnitude: {scales: 8}}"
        results = job(folder, sample(300, 10 + number, kinds=kinds), sample(300, 2), measures)
        found = results["measures"]["magnitude"]["chance"]
        ends = zip(found["lower"], found["found"], found["upper"], strict=True)
        outside.append(sum(not low <= value <= high for low, value, high in ends))
    assert sum(outside[:2]) <= 2
    assert outside[2] >= 6
    alone = tmp_path / "alone"
    alone.mkdir()
    without = job(alone, sample(300, 1), None, "{magnitude: {scales: 8}}")
    assert "chance" not in without["measures"]["magnitude"]


@pytest.mark.full
def test_grey_misses_one_place_in_twenty(tmp_path: Path) -> None:
    """Of 40 pairs of one source, 9 times of the heat trace and 7 scales of magnitude each."""
    measures = "{heat: {times: {start: 0.1, stop: 10, count: 9}}, magnitude: {scales: 8}}"
    missed = {"heat": 0, "magnitude": 0}
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        results = job(folder, sample(300, 2 * seed), sample(300, 2 * seed + 1), measures)
        for name in missed:
            found = results["measures"][name]["chance"]
            ends = zip(found["lower"], found["found"], found["upper"], strict=True)
            missed[name] += sum(not low <= value <= high for low, value, high in ends)
    # Places of one job aren't independent, so shares scatter by more than a binomial's.
    assert missed["heat"] / (40 * 9) <= 0.12
    assert missed["magnitude"] / (40 * 7) <= 0.12
