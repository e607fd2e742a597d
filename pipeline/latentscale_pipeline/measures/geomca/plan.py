"""GeomCA: epsilon, sparsification of both corpora, components and their scores.

One *setting* is an epsilon, a delta and an order of the rows. A job has one of its own; a sweep and
replicates add others, which share identical stages: epsilon is estimated once, a corpus is thinned
once for each delta and order, a graph is built once for each of those and epsilon, and thresholds
of precision and recall cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from latentscale.geomca.epsilon import SAMPLE_ROWS
from latentscale_pipeline.engine.cost import CostEstimate
from latentscale_pipeline.engine.stage import Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.measures.base import (
    CONVERSION_OPERATIONS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    JobFacts,
    Role,
    format_pairs,
)
from latentscale_pipeline.measures.geomca.config import Geomca
from latentscale_pipeline.measures.geomca.epsilon_graph import ROLES, join_rows, merge_forests
from latentscale_pipeline.measures.geomca.settings import (
    Setting,
    considered_rows,
    expected_pairs,
    expected_share,
    fitting_rows,
    least_delta,
    own_setting,
    replicate_settings,
    swept_settings,
    usual_share,
)
from latentscale_pipeline.measures.geomca.sparsification import (
    HELD_COORDINATE_BYTES,
    advance_fronts,
    draw_order,
    held_rows,
    join_drawn_rows,
    read_drawn_rows,
    remove_rows,
)
from latentscale_pipeline.measures.geomca.tasks import find_epsilon, read_samples
from latentscale_pipeline.measures.shared.random_rows import (
    BLOCK_ROWS,
    drawing_bytes,
    reading_tasks,
    row_bytes,
    share_reading,
)

MAX_PARTS = 512
"""Largest number of tasks of a sparsifying iteration; with more shards, each takes several."""

MAX_TASKS = 64
"""Largest number of tasks that find the edges of a graph."""

CANDIDATES_PER_KEPT_ROW = 2.0
"""Expected rows in fronts for each row that is kept."""


def plan_geomca(section: Geomca, facts: JobFacts) -> list[Stage]:
    """Plan epsilon, sparsification and components.

    Raises
    ------
    BadInput
        If there is no reference, or the rows in the configuration exceed the budget.
    """
    if "reference" not in facts.corpora:
        raise BadInput("measures.geomca compares with a reference; add reference: or leave it out")
    settings = [
        own_setting(section),
        *swept_settings(section),
        *replicate_settings(section, facts),
    ]
    considered = considered_rows(section, facts)
    if section.rows is not None:
        _check_budget(facts, considered, least_delta(section))
    epsilon = section.epsilon if section.epsilon is not None else facts.fixed_scales.get("epsilon")
    stages = [_epsilon_stage(section, facts)] if epsilon is None else []
    for setting in settings:
        for role in facts.corpora:
            stages += _thinning_stages(facts, setting, role, considered[role], epsilon)
        stages.append(_graph_stage(facts, setting, considered, epsilon))
    # Settings share what is the same.
    return list({stage.name: stage for stage in stages}.values())


def _check_budget(facts: JobFacts, considered: Mapping[Role, int], delta: float) -> None:
    pairs = expected_pairs(considered.values(), delta)
    if pairs <= facts.pairs:
        return
    share, fitting = expected_share(delta), fitting_rows(facts.pairs, delta)
    raise BadInput(
        f"measures.geomca is expected to keep up to {share:.0%} of the rows, which takes "
        f"{format_pairs(pairs)} pairs of rows, and budget.pairs is {format_pairs(facts.pairs)}; "
        f"set measures.geomca.rows to {fitting} or fewer random rows a side, or raise budget.pairs"
    )


def _epsilon_stage(section: Geomca, facts: JobFacts) -> Stage:
    role = facts.scale_role
    corpus = facts.corpora[role]
    sample = min(SAMPLE_ROWS, corpus.n // 2)
    stage = Stage(
        name="epsilon",
        work=find_epsilon,
        corpora=(role,),
        parameters={"role": role, "percentile": section.percentile},
        seed=facts.seed,
        memory_bytes=2 * sample * row_bytes(corpus)
        + 32 * sample * corpus.d
        + 24 * sample**2
        + FEW_TILES_BYTES,
        cost_estimate=CostEstimate(
            bytes_written=RESULT_BYTES,
            float64_multiply_adds=float(sample**2) * corpus.d,
            elementwise_operations=CONVERSION_OPERATIONS * 2.0 * sample * corpus.d
            + 200 * float(sample**2),
            method="percentile of sampled distances",
            why="neither geomca.epsilon nor scales_from gives it",
        ),
    )
    return share_reading(stage, corpus, read_samples, 2 * sample)


# --- sparsification ---------------------------------------------------------------------------


def _thinning_stages(
    facts: JobFacts, setting: Setting, role: Role, considered: int, epsilon: float | None
) -> list[Stage]:
    """Plan the sparsification of a corpus, and before it the draw of rows or of their order."""
    corpus = facts.corpora[role]
    whole = considered == corpus.n
    drawn = () if whole and setting.order == 0 else (setting.drawn(role),)
    draws = [_draw_stage(facts, name, setting, role, considered) for name in drawn]
    thinned = Stage(
        name=setting.thinned(role),
        work=remove_rows,
        advance=advance_fronts,
        partitions=min(corpus.shards, MAX_PARTS) if whole else reading_tasks(corpus),
        needs=(*_epsilon_needed(epsilon), *drawn),
        corpora=(role,),
        parameters={
            "role": role,
            "epsilon": epsilon,
            "delta": setting.delta,
            "drawn": drawn[0] if drawn else None,
        },
        memory_bytes=_thinning_memory(corpus, considered, drawn=bool(drawn)),
        cost_estimate=_thinning_cost(corpus, considered, setting),
    )
    return [*draws, thinned]


def _draw_stage(facts: JobFacts, name: str, setting: Setting, role: Role, considered: int) -> Stage:
    """Plan to draw rows and read them in one pass, or to draw the order of all rows."""
    corpus = facts.corpora[role]
    order = 8 * considered if setting.order else 0
    stage = Stage(
        name=name,
        temporary="result",
        work=draw_order,
        corpora=(role,),
        parameters={"role": role, "rows": considered, "order": setting.order},
        seed=facts.seed,
        memory_bytes=drawing_bytes(corpus.n, considered) + order,
        cost_estimate=CostEstimate(
            bytes_written=8 * considered + order + RESULT_BYTES,
            elementwise_operations=20.0 * considered,
        ),
    )
    if considered == corpus.n:
        return stage
    tasks, rows = reading_tasks(corpus), row_bytes(corpus) * considered
    cost = stage.cost_estimate
    return replace(
        stage,
        lasting_parts=True,
        work=read_drawn_rows,
        finalise=join_drawn_rows,
        partitions=tasks,
        memory_bytes=stage.memory_bytes + 2 * corpus.shard_stored_bytes + 2 * (rows // tasks),
        cost_estimate=replace(
            cost,
            bytes_read=corpus.stored_bytes,
            bytes_written=cost.bytes_written + rows + tasks * RESULT_BYTES,
        ),
    )


def _epsilon_needed(epsilon: float | None) -> tuple[str, ...]:
    return ("epsilon",) if epsilon is None else ()


def _thinning_memory(corpus: CorpusFacts, considered: int, *, drawn: bool) -> int:
    held = min(held_rows(corpus.d), considered)
    shard = 2 * _read_bytes(corpus, considered)
    block = 20 * BLOCK_ROWS * corpus.d + FEW_TILES_BYTES
    keepers = HELD_COORDINATE_BYTES * held * corpus.d
    removing = keepers + shard + block + 24 * max(corpus.rows_of_shard, considered)
    # A front in the stored type, in float64, in float32, and a copy of what is kept.
    thinning = held * corpus.d * (8 + 4 + 12) + FEW_TILES_BYTES
    front = held * row_bytes(corpus) + max(thinning, shard)
    places = 16 * considered if drawn else 0
    return max(removing + places, front + 40 * considered + places)


def _read_bytes(corpus: CorpusFacts, considered: int) -> int:
    """Return the bytes that are read at once: a shard, or what a task drew from its shards."""
    if considered == corpus.n:
        return corpus.shard_stored_bytes
    # Twice the mean, because shards and draws differ.
    return 2 * considered * row_bytes(corpus) // reading_tasks(corpus)


def _thinning_cost(corpus: CorpusFacts, considered: int, setting: Setting) -> CostEstimate:
    kept = usual_share(setting.delta, considered) * considered
    # A kept row is compared with all rows kept before it, another row with half of them.
    pairs = kept * considered / 2
    held = held_rows(corpus.d)
    iterations = 0 if considered <= held else -(-int(CANDIDATES_PER_KEPT_ROW * kept) // held)
    state = 8 * considered + min(held, int(kept)) * row_bytes(corpus)
    whole = considered == corpus.n
    return CostEstimate(
        bytes_read=(iterations + 1) * considered * row_bytes(corpus) + 2 * iterations * state,
        bytes_written=int(16 * considered + 16 * kept)
        + iterations * (state + 8 * considered)
        + RESULT_BYTES,
        result_bytes=int(16 * considered + 16 * kept) + RESULT_BYTES,
        state_bytes=state,
        float32_multiply_adds=pairs * corpus.d,
        elementwise_operations=3 * pairs
        + (iterations + 1) * CONVERSION_OPERATIONS * float(considered) * corpus.d,
        iterations=iterations,
        method="greedy in a random order" if setting.order else "greedy in row order",
        why="all rows" if whole else f"{considered:,} random rows",
    )


# --- the graph --------------------------------------------------------------------------------


def _graph_stage(
    facts: JobFacts, setting: Setting, considered: dict[Role, int], epsilon: float | None
) -> Stage:
    """Plan the graph on two sparse corpora."""
    thinned = {role: setting.thinned(role) for role in ROLES}
    drawn = {
        role: None if considered[role] == corpus.n else setting.drawn(role)
        for role, corpus in facts.corpora.items()
    }
    held = held_rows(facts.corpora["corpus"].d)
    return Stage(
        name=setting.graph,
        work=join_rows,
        finalise=merge_forests,
        partitions=min(sum(-(-n // held) for n in considered.values()), MAX_TASKS),
        needs=(
            *_epsilon_needed(epsilon),
            *thinned.values(),
            *(name for name in drawn.values() if name),
        ),
        parameters={
            "epsilon": epsilon,
            "factor": setting.factor,
            "thinned": thinned,
            "drawn": drawn,
        },
        corpora=tuple(facts.corpora),
        memory_bytes=_graph_memory(facts, considered),
        cost_estimate=_graph_cost(facts, considered, setting.delta),
    )


def _graph_memory(facts: JobFacts, considered: dict[Role, int]) -> int:
    """Memory if every row is kept, because their number isn't known before."""
    read = max(_read_bytes(facts.corpora[role], n) for role, n in considered.items())
    vertices, d = sum(considered.values()), facts.corpora["corpus"].d
    held = min(held_rows(d), max(considered.values()))
    passing = 2 * read + 20 * BLOCK_ROWS * d + FEW_TILES_BYTES
    joining = HELD_COORDINATE_BYTES * held * d + passing + 48 * vertices
    return max(joining, 160 * vertices + FEW_TILES_BYTES)


def _graph_cost(facts: JobFacts, considered: dict[Role, int], delta: float) -> CostEstimate:
    rows = sum(considered.values())
    kept = usual_share(delta, rows) * rows
    pairs = kept**2 / 2
    d = facts.corpora["corpus"].d
    groups = -(-int(kept) // held_rows(d))
    stored = sum(n * row_bytes(facts.corpora[role]) for role, n in considered.items())
    tasks = min(groups, MAX_TASKS)
    return CostEstimate(
        bytes_read=(groups + 1) * stored + 24 * rows + int(16 * kept) * tasks,
        bytes_written=8 * rows + int((40 + 16 * tasks) * kept) + RESULT_BYTES,
        float32_multiply_adds=pairs * d,
        elementwise_operations=3 * pairs + groups * CONVERSION_OPERATIONS * kept * d,
        method="union and find over tiles",
        why=f"some {kept / rows:.1%} of the rows are expected to be kept",
    )
