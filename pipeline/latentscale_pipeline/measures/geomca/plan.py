"""GeomCA: epsilon, sparsification of both corpora, components and their scores.

One *setting* is an epsilon, a delta and an order of the rows. A job has one of its own; a sweep and
replicates add others, whose stages share whatever is the same: epsilon is found once, a corpus is
thinned once for each delta and order, a graph is built once for each of those and epsilon, and the
thresholds of precision and recall cost nothing.
"""

from __future__ import annotations

import math

from latentscale.geomca.epsilon import SAMPLE_ROWS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    JobFacts,
    Role,
    write_pairs,
)
from latentscale_pipeline.measures.geomca.config import Geomca
from latentscale_pipeline.measures.geomca.epsilon_graph import ROLES, graph_stage
from latentscale_pipeline.measures.geomca.settings import (
    Setting,
    own_setting,
    replicate_settings,
    swept_settings,
)
from latentscale_pipeline.measures.geomca.sparsification import (
    draw_stage,
    expected_share,
    sparsify_stage,
)
from latentscale_pipeline.measures.geomca.tasks import find_epsilon


def plan_geomca(section: Geomca, facts: JobFacts) -> list[Stage]:
    """Plan epsilon, sparsification and components.

    Raises
    ------
    BadInput
        If there is no reference, the two corpora differ in dimension, or so many rows are expected
        to be kept that the budget doesn't allow to compare them.
    """
    if "reference" not in facts.corpora:
        raise BadInput("measures.geomca compares with a reference; add one or leave it out")
    settings = [
        own_setting(section),
        *swept_settings(section),
        *replicate_settings(section, facts),
    ]
    _check_budget(section, facts, min(setting.delta for setting in settings))
    epsilon = section.epsilon if section.epsilon is not None else facts.fixed_scales.get("epsilon")
    stages = {} if epsilon is not None else {"epsilon": _epsilon_stage(section, facts)}
    for setting in settings:
        for role in facts.corpora:
            for stage in _thinning_stages(section, facts, setting, role, epsilon):
                stages[stage.name] = stage
        stages[setting.graph] = graph_stage(
            facts,
            name=setting.graph,
            epsilon=epsilon,
            factor=setting.factor,
            delta=setting.delta,
            rows=section.rows,
            thinned={role: setting.thinned(role) for role in ROLES},
        )
    return list(stages.values())


def _thinning_stages(
    section: Geomca, facts: JobFacts, setting: Setting, role: Role, epsilon: float | None
) -> list[Stage]:
    corpus = facts.corpora[role]
    draw = draw_stage(
        role,
        corpus,
        name=setting.drawn(role),
        rows=section.rows,
        order=setting.order,
        seed=facts.seed,
    )
    thin = sparsify_stage(
        role,
        corpus,
        name=setting.thinned(role),
        epsilon=epsilon,
        delta=setting.delta,
        rows=section.rows,
        drawn=None if draw is None else draw.name,
    )
    return [thin] if draw is None else [draw, thin]


def _check_budget(section: Geomca, facts: JobFacts, delta: float) -> None:
    share = expected_share(delta)
    considered = {role: _rows(section, facts, role) for role in facts.corpora}
    # Thinning compares every row with those kept before it, the graph all kept rows.
    pairs = [share * n**2 / 2 for n in considered.values()]
    pairs.append((share * sum(considered.values())) ** 2 / 2)
    if max(pairs) <= facts.pairs:
        return
    fitting = min(math.sqrt(2 * facts.pairs / share), math.sqrt(facts.pairs / 2) / share)
    raise BadInput(
        f"measures.geomca is expected to keep up to {share:.0%} of the rows, which takes "
        f"{write_pairs(max(pairs))} pairs of rows, and budget.pairs is {write_pairs(facts.pairs)}; "
        f"set measures.geomca.rows to {_round_down(fitting)} or fewer random rows a side, or raise "
        "budget.pairs"
    )


def _round_down(rows: float) -> int:
    digits = math.floor(math.log10(max(rows, 1.0)))
    unit = 10.0 ** max(0, digits - 1)
    return max(1, int(rows // unit * unit))


def _rows(section: Geomca, facts: JobFacts, role: Role) -> int:
    n = facts.corpora[role].n
    return n if section.rows is None else min(section.rows, n)


def _epsilon_stage(section: Geomca, facts: JobFacts) -> Stage:
    role = facts.scale_role
    corpus = facts.corpora[role]
    sample = min(SAMPLE_ROWS, corpus.n // 2)
    chosen = 2 * sample * (corpus.stored_bytes // corpus.n)
    return Stage(
        name="epsilon",
        work=find_epsilon,
        corpora=(role,),
        parameters={"role": role, "percentile": section.percentile},
        seed=facts.seed,
        memory_bytes=chosen
        + max(2 * corpus.shard_stored_bytes, 32 * sample * corpus.d + 24 * sample**2)
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_read=min(corpus.stored_bytes, 2 * sample * corpus.shard_stored_bytes),
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=float(sample**2) * corpus.d,
            elementwise_operations=CONVERSION_OPERATIONS * 2.0 * sample * corpus.d
            + 200 * float(sample**2),
            method="percentile of sampled distances",
            why="neither geomca.epsilon nor scales_from gives it",
        ),
    )
