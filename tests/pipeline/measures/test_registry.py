"""A new measure appears everywhere by itself."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from latentscale.estimate import Estimate, Scored
from latentscale_pipeline.config.job import read_config
from latentscale_pipeline.config.section import Section
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.jobs.plan import make_plan, measure_sections
from latentscale_pipeline.jobs.run import Finished, run_job
from latentscale_pipeline.measures.base import (
    Findings,
    JobFacts,
    Measure,
    Results,
    Score,
    load_estimate,
    store_estimate,
)
from latentscale_pipeline.measures.registry import MEASURES
from latentscale_pipeline.report.scores import freedom_of_error
from latentscale_pipeline.report.terminal import print_scores
from latentscale_pipeline.results.part import Part
from latentscale_pipeline.storage.artifacts import Output
from tests.support.jobs import measure_rows
from tests.support.results_documents import check_results


class MeanNorm(Section):
    """Section of the toy measure."""

    power: int = 1


def work(inputs: Inputs) -> Output:
    rows = inputs.corpora[inputs.parameters["role"]].read_all()
    norms = np.linalg.norm(rows.astype(float), axis=1) ** inputs.parameters["power"]
    value = float(norms.mean())
    return Output({"estimate": store_estimate(Estimate.exact(value, "mean"))}, {"norms": norms})


class Toy(Measure):
    section = MeanNorm

    def plan(self, section: MeanNorm, facts: JobFacts) -> list[Stage]:
        return [
            Stage(
                f"mean-norm-{role}",
                work,
                corpus.points_bytes,
                corpora=(role,),
                parameters={"role": role, "power": section.power},
            )
            for role, corpus in facts.corpora.items()
        ]

    def collect(self, section: MeanNorm, facts: JobFacts, results: Results) -> Findings:
        found: dict[str, Any] = {}
        scores = []
        fields = {"measure": "mean_norm", "score": "mean_norm", "unit": "length", "better": "none"}
        for role in facts.corpora:
            estimate = load_estimate(results(f"mean-norm-{role}").values["estimate"])
            found[role] = {"value": estimate.value}
            scores.append(Score.from_estimate(estimate, of=role, **fields))
        paths = {f"mean_norm/{role}": results(f"mean-norm-{role}").path("norms") for role in found}
        return Findings(Part(**found), tuple(scores), paths)


def run_toy(tmp_path: Path) -> Finished:
    np.save(tmp_path / "c.npy", np.array([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]], dtype="f4"))
    config = read_config(
        f"name: toy\ncorpus: {tmp_path / 'c.npy'}\noutput: {tmp_path / 'jobs'}\n"
        "measures: {mean_norm: {power: 2}, vendi: {kernels: [cosine], orders: [1]}}\n"
        "cluster: {kind: serial}\n",
        "toy.yaml",
        measures=measure_sections(),
    )
    return run_job(make_plan(config), lambda event, **_: None)


def test_a_toy_measure_is_in_results_summary_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEASURES, "mean_norm", Toy())
    finished = run_toy(tmp_path)
    results = finished.results.document()
    check_results(results)
    [row] = [row for row in results["scores"] if row["measure"] == "mean_norm"]
    assert row == {
        "measure": "mean_norm",
        "of": "corpus",
        "score": "mean_norm",
        "value": 42.0,
        "lower": 42.0,
        "upper": 42.0,
        "bounds": "exact",
        "unit": "length",
        "better": "none",
        "sampling_error": None,
        "sampling_error_reason": "it isn't estimated for this score",
    }
    assert results["measures"]["mean_norm"] == {"corpus": {"value": 42.0}}
    norms = np.load(Path(finished.store.url) / results["arrays"]["mean_norm/corpus"])
    np.testing.assert_allclose(norms, [25.0, 1.0, 100.0])
    printed = io.StringIO()
    print_scores(finished.results, Console(file=printed, width=120))
    [line] = [line for line in printed.getvalue().splitlines() if "mean_norm" in line]
    assert "42" in line
    assert "length" in line
    assert "mean_norm" in finished.store.read("report.html").decode()


@pytest.mark.parametrize("section", measure_sections().values())
def test_every_section_has_defaults(section: type[Section]) -> None:
    assert section() is not None


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_with_settings_has_a_section_in_the_report(name: str) -> None:
    measure = MEASURES[name]
    assert bool(measure.report.title) == (measure.section is not None)


def test_reading_what_measures_say_needs_no_numerical_library() -> None:
    code = (
        "import sys\n"
        "from latentscale_pipeline.measures.registry import MEASURES\n"
        "import latentscale_pipeline.compare.report, latentscale_pipeline.compare.terminal\n"
        "import latentscale_pipeline.history.report\n"
        "import latentscale_pipeline.cli.run, latentscale_pipeline.cli.subset\n"
        "[measure.report for measure in MEASURES.values()]\n"
        "heavy = {'numba', 'scipy', 'sklearn', 'pynndescent', 'dask', 'distributed'}\n"
        "heavy |= {'jinja2', 'zarr', 'pyarrow'}\n"
        "print(*heavy & {*sys.modules})"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout.split() == []


def test_the_freedom_of_errors_is_that_of_their_groups() -> None:
    from latentscale.sampling.jackknife import GROUPS
    from latentscale_pipeline.measures.mmd.tasks import MAX_RATIO, MAX_TOGETHER
    from latentscale_pipeline.measures.spectrum.plan import MIN_GROUPS

    def freedom(measure: str) -> set[int]:
        return {score.error_freedom for score in MEASURES[measure].report.scores.values()}

    assert freedom("vendi") == {GROUPS - 1}
    # The smaller corpus never has fewer groups.
    assert freedom("mmd") == {MAX_TOGETHER // (1 + MAX_RATIO)}
    assert freedom("spectrum") == {MIN_GROUPS - 1}


def test_a_sampling_error_says_where_it_comes_from() -> None:
    vendi = MEASURES["vendi"].report.scores["vendi"]
    number = Estimate.exact(3.0, "dense")
    known = vendi.score(number, "corpus", sampling_error=0.2)
    assert (known.sampling_method, known.sampling_freedom) == ("jackknife", 19)
    scored = MEASURES["duplicates"].report.scores["covered"].score(Scored(number, 0.1), "corpus")
    assert (scored.sampling_method, scored.sampling_freedom) == ("counts", None)
    unknown = vendi.score(number, "corpus")
    assert (unknown.sampling_method, unknown.sampling_freedom) == (None, None)
    assert vendi.score(number, "corpus", sampling_freedom=3).sampling_freedom is None
    few = vendi.score(number, "corpus", sampling_error=0.2, sampling_freedom=3)
    assert (freedom_of_error(few), freedom_of_error(known), few.sampling_freedom) == (3, 19, 3)
    for score in (known, scored, unknown):
        assert Score.unflatten(score.flat()) == score


def test_the_fewest_rows_of_errors_are_those_of_their_stages() -> None:
    from latentscale.hubness import scores as hubness
    from latentscale.spectrum import scores as spectrum
    from latentscale_pipeline.measures.magnitude import plan as magnitude
    from latentscale_pipeline.measures.vendi import sampling_error as vendi

    assert {name: each.error_rows for name, each in MEASURES.items() if each.error_rows > 1} == {
        "hubness": hubness.MIN_ROWS,
        "magnitude": magnitude.MIN_ERROR_ROWS,
        "spectrum": spectrum.MIN_ROWS,
        "vendi": vendi.MIN_ROWS,
    }


@pytest.mark.parametrize("paired", [False, True])
def test_results_of_every_measure_follow_the_schema(tmp_path: Path, paired: bool) -> None:
    of_pairs = {"alignment", "conditional"}
    names = [name for name in MEASURES if (name in of_pairs) == paired]
    corpora = {
        role: np.random.default_rng(seed).normal(size=(120, 4))
        for seed, role in enumerate(("corpus", "reference"))
    }
    measures, job = ", ".join(f"{name}: {{}}" for name in names), "pair: rows\n" * paired
    for rows in (120, 8):
        labels = tmp_path / f"{rows}.txt"
        labels.write_text("one\n" * 5 + "two\n" * (rows - 5))
        given = {role: drawn[:rows] for role, drawn in corpora.items()}
        found = measure_rows(tmp_path / str(rows), measures, job=job, labels=str(labels), **given)
        check_results(found)
        measured = {row["measure"] for row in found["scores"]} | {"projection"}
        assert measured >= set(names) if rows == 120 else measured
