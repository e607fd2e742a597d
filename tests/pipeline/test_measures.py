"""A new measure appears everywhere by itself."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from latentscale import Estimate
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.job.config import Section, read_config
from latentscale_pipeline.job.publishing import Output
from latentscale_pipeline.plan import make_plan, measure_sections
from latentscale_pipeline.run import Finished, run_job
from latentscale_pipeline.stages import MEASURES
from latentscale_pipeline.stages.measure import (
    Findings,
    JobFacts,
    Measure,
    Results,
    Score,
    load_estimate,
    store_estimate,
)
from latentscale_pipeline.summary import print_summary
from tests.results_documents import check_results


class MeanNorm(Section):
    """Section of the toy measure."""

    power: int = 1


def work(inputs: Inputs) -> Output:
    rows = inputs.corpora[inputs.parameters["role"]].read_all()
    norms = np.linalg.norm(rows.astype(float), axis=1) ** inputs.parameters["power"]
    value = float(norms.mean())
    return Output({"estimate": store_estimate(Estimate.exact(value, "mean"))}, {"norms": norms})


def plan(section: MeanNorm, facts: JobFacts) -> list[Stage]:
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


def collect(section: MeanNorm, facts: JobFacts, results: Results) -> Findings:
    found: dict[str, Any] = {}
    scores = []
    for role in facts.corpora:
        estimate = load_estimate(results(f"mean-norm-{role}").values["estimate"])
        found[role] = {"value": estimate.value}
        fields = {"measure": "mean_norm", "score": "mean_norm", "unit": "length", "better": "none"}
        scores.append(Score.known(estimate, of=role, **fields))
    paths = {f"mean_norm/{role}": results(f"mean-norm-{role}").path("norms") for role in found}
    return Findings(found, scores, paths)


TOY = Measure(MeanNorm, plan, collect)


def run_toy(tmp_path: Path, measures: Mapping[str, Measure]) -> Finished:
    np.save(tmp_path / "c.npy", np.array([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]], dtype="f4"))
    config = read_config(
        f"name: toy\ncorpus: {tmp_path / 'c.npy'}\noutput: {tmp_path / 'jobs'}\n"
        "measures: {mean_norm: {power: 2}, vendi: {kernels: [cosine], orders: [1]}}\n"
        "cluster: {kind: serial}\n",
        "toy.yaml",
        measures=measure_sections(measures),
    )
    return run_job(make_plan(config, measures=measures), lambda event, **_: None, measures=measures)


def test_a_toy_measure_is_in_results_summary_and_report(tmp_path: Path) -> None:
    finished = run_toy(tmp_path, {**MEASURES, "mean_norm": TOY})
    results = dict(finished.results)
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
    }
    assert results["measures"]["mean_norm"] == {"corpus": {"value": 42.0}}
    norms = np.load(Path(finished.store.url) / results["arrays"]["mean_norm/corpus"])
    np.testing.assert_allclose(norms, [25.0, 1.0, 100.0])
    printed = io.StringIO()
    print_summary(results, Console(file=printed, width=120))
    [line] = [line for line in printed.getvalue().splitlines() if "mean_norm" in line]
    assert "42" in line
    assert "length" in line
    assert "mean_norm" in finished.store.read("report.html").decode()


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_names_a_section(name: str) -> None:
    assert issubclass(MEASURES[name].section, Section)
    assert MEASURES[name].section() is not None
