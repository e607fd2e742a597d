"""GeomCA: epsilon, sparsification of both corpora, components and their scores.

One *setting* is an epsilon, a delta and an order of the rows. A job has one of its own; a sweep and
replicates add others, whose stages share whatever is the same: epsilon is found once, a corpus is
thinned once for each delta and order, a graph is built once for each of those and epsilon, and the
thresholds of precision and recall cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from latentscale import Estimate
from latentscale.distances import as_points
from latentscale.epsilon_graph import Components
from latentscale.geomca import (
    SAMPLE_ROWS,
    GeomcaScores,
    draw_samples,
    estimate_epsilon,
    geomca_scores,
)
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Geomca
from latentscale_pipeline.job.publishing import Output, Published
from latentscale_pipeline.stages.epsilon_graph import COMPONENT_ARRAYS, ROLES, graph_stage
from latentscale_pipeline.stages.measure import (
    CONVERSION_FOLDS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
    load_estimate,
    require_equal_dimensions,
    store_estimate,
    write_pairs,
)
from latentscale_pipeline.stages.sparsification import draw_stage, expected_share, sparsify_stage

LISTED_COMPONENTS = 200
"""Components that results.json lists, largest first; all are in the store."""

SCORES = tuple(field.name for field in fields(GeomcaScores))

METHOD = "greedy sparsification"


@dataclass(frozen=True)
class Setting:
    """One graph of a job.

    Attributes
    ----------
    factor : float
        The graph's epsilon in units of the job's.
    delta : float
        What both corpora are thinned with, in units of the job's epsilon.
    order : int
        0 for the order of the rows; other numbers are random orders.
    main : bool
        Whether it is thinned with the delta of the job itself.
    """

    factor: float
    delta: float
    order: int
    main: bool

    def thinned(self, role: Role) -> str:
        """Name the stage that thins a corpus."""
        name = f"sparsify-{role}" if self.main else f"sparsify-{role}-delta-{self.delta}"
        return f"{name}-order-{self.order}" if self.order else name

    def drawn(self, role: Role) -> str:
        """Name the stage that draws rows of a corpus, or their order, where that is needed."""
        return f"rows-{role}-order-{self.order}" if self.order else f"rows-{role}"

    @property
    def graph(self) -> str:
        """Name the stage that builds the graph."""
        if self.order:
            return f"geomca-order-{self.order}"
        if self.main and self.factor == 1.0:
            return "geomca"
        return f"geomca-epsilon-{self.factor}-delta-{self.delta}"


def own_setting(section: Geomca) -> Setting:
    """Return what the measure's own keys say."""
    return Setting(1.0, section.delta, 0, main=True)


def swept_settings(section: Geomca) -> list[Setting]:
    """Return the graphs of a sweep, that of the measure's own keys among them if it asks for it."""
    if section.sweep is None:
        return []
    return [
        Setting(factor, delta, 0, main=delta == section.delta)
        for factor, delta in product(
            section.sweep.epsilon or [1.0], section.sweep.delta or [section.delta]
        )
    ]


def replicate_settings(section: Geomca, facts: JobFacts) -> list[Setting]:
    """Return the same graph under random orders of the rows."""
    orders = range(1, facts.replicates + 1) if facts.replicates > 1 else ()
    return [Setting(1.0, section.delta, order, main=True) for order in orders]


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
    require_equal_dimensions("geomca", facts)
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
        effort=Effort(
            bytes_read=min(corpus.stored_bytes, 2 * sample * corpus.shard_stored_bytes),
            bytes_written=RESULT_BYTES,
            products=float(sample**2) * corpus.d,
            folds=CONVERSION_FOLDS * 2.0 * sample * corpus.d + 200 * float(sample**2),
            method="percentile of sampled distances",
            why="neither geomca.epsilon nor scales_from gives it",
        ),
    )


def find_epsilon(inputs: Inputs) -> Output:
    """Estimate epsilon from two disjoint samples of the reference."""
    p = inputs.parameters
    corpus = inputs.corpora[p["role"]]
    try:
        samples = draw_samples(corpus.n, inputs.generator())
        drawn = np.sort(np.concatenate(samples))
        points = as_points(corpus.read_index(drawn), "euclidean")
        left, right = (points.take(np.searchsorted(drawn, sample)) for sample in samples)
        epsilon = estimate_epsilon(left, right, p["percentile"])
    except ValueError as error:
        return Output(values={"reason": str(error)})
    return Output(values={"epsilon": epsilon.value, "estimate": store_estimate(epsilon)})


def collect_geomca(section: Geomca, facts: JobFacts, results: Results) -> Findings:
    """Collect global scores and the largest components."""
    published = results(own_setting(section).graph)
    if "reason" in published.values:
        reason = str(published.values["reason"])
        unknown = [Score.unknown(reason, **_fields(name, section, facts)) for name in SCORES]
        return Findings(None, unknown, reason=reason)
    components = _components(published)
    scores = _scores(published, components, section.eta_c, section.eta_q)
    orders = [
        _scores(graph, _components(graph), section.eta_c, section.eta_q)
        for graph in (results(s.graph) for s in replicate_settings(section, facts))
    ]
    found = {
        **_epsilon_found(section, facts, results, published.values["epsilon"]),
        "delta": section.delta * published.values["epsilon"],
        **asdict(scores),
        "eta_c": section.eta_c,
        "eta_q": section.eta_q,
        "sizes": published.values["sizes"],
        "outliers": published.values["outliers"],
        "component_count": len(components),
        "components": _listed(components),
        **({"orders": [asdict(other) for other in orders]} if orders else {}),
        **({"sweep": _swept(section, results)} if section.sweep is not None else {}),
    }
    rows = [
        Score.known(
            _over_orders(getattr(scores, name), [getattr(other, name) for other in orders]),
            **_fields(name, section, facts),
        )
        for name in SCORES
    ]
    return Findings(found, rows, _arrays(section, published, results))


def _components(published: Published) -> Components:
    return Components(**{name: published.array(name) for name in COMPONENT_ARRAYS})


def _scores(
    published: Published, components: Components, eta_c: float, eta_q: float
) -> GeomcaScores:
    return geomca_scores(
        components,
        eta_c=eta_c,
        eta_q=eta_q,
        reference_rows=published.array("rows_reference"),
        corpus_rows=published.array("rows_corpus"),
    )


def _epsilon_found(
    section: Geomca, facts: JobFacts, results: Results, epsilon: float
) -> dict[str, Any]:
    if section.epsilon is not None or "epsilon" in facts.fixed_scales:
        return {"epsilon": epsilon, "percentile": None}
    estimate = load_estimate(results("epsilon").values["estimate"])
    return {
        "epsilon": epsilon,
        "epsilon_lower": estimate.lower,
        "epsilon_upper": estimate.upper,
        "percentile": section.percentile,
    }


def _over_orders(value: float, others: Sequence[float]) -> Estimate:
    """Bracket a score with where it would be under another order of the rows."""
    if not others:
        return Estimate.exact(value, METHOD)
    count, mean = len(others), float(np.mean(others))
    spread = float(np.std(others, ddof=1))
    half = float(student_t.ppf(0.975, count - 1)) * spread * math.sqrt(1 + 1 / count)
    return Estimate(
        value,
        min(value, max(0.0, mean - half)),
        max(value, min(1.0, mean + half)),
        "interval95",
        f"{METHOD}, {count} random row orders",
        spread,
    )


def _swept(section: Geomca, results: Results) -> list[dict[str, Any]]:
    if section.sweep is None:
        return []
    entries = []
    own = results(own_setting(section).graph).values["epsilon"]
    thresholds = list(
        product(section.sweep.eta_c or [section.eta_c], section.sweep.eta_q or [section.eta_q])
    )
    for setting in swept_settings(section):
        published = results(setting.graph)
        components = _components(published)
        for eta_c, eta_q in thresholds:
            entries.append(
                {
                    "epsilon": published.values["epsilon"],
                    "delta": setting.delta * own,
                    "eta_c": eta_c,
                    "eta_q": eta_q,
                    **asdict(_scores(published, components, eta_c, eta_q)),
                    "sizes": published.values["sizes"],
                    "component_count": len(components),
                }
            )
    return entries


def _arrays(section: Geomca, published: Published, results: Results) -> Mapping[str, str]:
    arrays = {f"geomca/components/{name}": published.path(name) for name in COMPONENT_ARRAYS}
    for role in ROLES:
        thinned = results(own_setting(section).thinned(role))
        # Membership is given for the rows considered: all of them, unless geomca.rows drew some.
        arrays[f"geomca/membership/{role}"] = published.path(f"membership_{role}")
        arrays[f"geomca/outliers/{role}"] = published.path(f"outliers_{role}")
        arrays[f"geomca/rows/{role}"] = thinned.path("rows")
        arrays[f"geomca/kept/{role}"] = thinned.path("kept_rows")
        arrays[f"geomca/representative/{role}"] = thinned.path("representative")
    return arrays


def _fields(score: str, section: Geomca, facts: JobFacts) -> dict[str, Any]:
    drawn = section.rows
    return {
        "measure": "geomca",
        "of": "pair",
        "score": score,
        "unit": "fraction",
        "better": "high",
        # More rows at the same epsilon cover more; a fixed number drawn from each side doesn't.
        "size_dependent": drawn is None or any(c.n < drawn for c in facts.corpora.values()),
    }


def _listed(components: Components) -> list[dict[str, Any]]:
    count = min(len(components), LISTED_COMPONENTS)
    return [
        {
            "rank": rank,
            "size": int(components.size[rank]),
            "n_reference": int(components.n_reference[rank]),
            "n_corpus": int(components.n_corpus[rank]),
            "consistency": float(components.consistency[rank]),
            "quality": float(components.quality[rank]),
            "edges": int(components.edges[rank]),
        }
        for rank in range(count)
    ]


GEOMCA = Measure(section=Geomca, plan=plan_geomca, collect=collect_geomca, compares=True)
