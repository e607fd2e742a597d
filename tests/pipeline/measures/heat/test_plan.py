"""What a plan and a report say beforehand of heat traces that take long or mean little."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from latentscale.graphs.knn import symmetrise
from latentscale.graphs.laplacian import find_null_space, normalised_laplacian
from latentscale.heat.trace import sufficient_steps
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.measures.base import CorpusFacts, JobFacts, Role
from latentscale_pipeline.measures.heat.config import Heat
from latentscale_pipeline.measures.heat.plan import _expected_steps, plan_heat
from latentscale_pipeline.measures.heat.report import HeatReport
from tests.support.results_documents import example_results, read


def path(n: int) -> csr_array:
    ends = np.arange(n)[:, None] + np.array([-1, 1])
    return normalised_laplacian(symmetrise(np.clip(ends, 0, n - 1)))


@pytest.mark.parametrize(("stop", "steps"), [(10.0, 10), (100.0, 40), (1e4, 320)])
def test_expected_steps_grow_with_the_root_of_time(stop: float, steps: int) -> None:
    section = Heat.model_validate({"steps": "auto", "times": {"stop": stop}})
    assert _expected_steps(section) == steps
    laplacian = path(1500)
    taken = sufficient_steps(
        laplacian,
        np.geomspace(0.1, stop, 8),
        tolerance=1e-3,
        generator=np.random.default_rng(0),
        null_space=find_null_space(laplacian),
    )
    assert steps / 2 <= taken <= steps


def test_imd_of_a_few_rows_is_planned_without_draws() -> None:
    def work(*rows: int) -> float:
        of = [CorpusFacts(n=n, d=16, dtype="float32", shards=1, shard_rows=n) for n in rows]
        corpora: dict[Role, CorpusFacts] = {"corpus": of[0], "reference": of[1]}
        facts = JobFacts(corpora, seed=0, pairs=2e11, scale_role="corpus")
        stages = {stage.name: stage for stage in plan_heat(Heat(), facts)}
        return stages["imd"].cost_estimate.total_multiply_adds

    assert work(400, 500) == 0.0
    assert 0.0 < work(400, 600) == work(2000, 1500) < 1e8


@pytest.mark.parametrize(("rows", "descends"), [(3000, False), (500_000, True)])
def test_groups_that_are_compared_exactly_take_no_descent(rows: int, descends: bool) -> None:
    corpus = CorpusFacts(n=rows, d=48, dtype="float32", shards=1, shard_rows=rows)
    facts = JobFacts({"corpus": corpus}, seed=0, pairs=2e11, scale_role="corpus")

    def search(neighbours: str) -> Stage:
        section = Heat.model_validate({"neighbours": neighbours})
        return next(s for s in plan_heat(section, facts) if s.name == "search-corpus")

    plain, asked = search("cells"), search("nndescent")
    assert (asked.lasting_bytes > 0) is descends
    assert asked.cost_estimate.method.endswith("searched by nndescent") is descends
    same = replace(asked.cost_estimate, why=plain.cost_estimate.why) == plain.cost_estimate
    assert same is not descends


def test_ties_and_impossible_null_models_are_noted() -> None:
    found = read(example_results()).part("heat")
    assert not any("distance of the last" in note for note in HeatReport().notes(found))
    graph = found.corpus.graph.model_copy(update={"tied": 0.25, "mean_degree": 3.5})
    trace = found.corpus.model_copy(update={"graph": graph, "normalization": "er"})
    notes = HeatReport().notes(found.model_copy(update={"corpus": trace}))
    assert any(note.startswith("For 25 % of the rows of the corpus") for note in notes)
    assert any("mean degree, 3.5, is below 4" in note for note in notes)
