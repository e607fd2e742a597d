"""GeomCA: epsilon, sparsification of both corpora, components and their scores."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import numpy as np

from latentscale import Estimate
from latentscale.distances import as_points
from latentscale.geomca import (
    Components,
    GeomcaScores,
    Sparsification,
    epsilon_components,
    estimate_epsilon,
    geomca_scores,
    sparsify,
)
from latentscale_pipeline.engine.stage import Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Geomca
from latentscale_pipeline.job.publishing import Output
from latentscale_pipeline.stages.measure import (
    TILE_BYTES,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
)

LISTED_COMPONENTS = 200
"""Components that results.json lists, largest first; all are in the store."""

SCORES = tuple(field.name for field in fields(GeomcaScores))

COMPONENT_ARRAYS = (
    "labels_reference",
    "labels_corpus",
    "n_reference",
    "n_corpus",
    "edges_reference",
    "edges_corpus",
    "edges_between",
)


def plan_geomca(section: Geomca, facts: JobFacts) -> list[Stage]:
    """Plan epsilon, sparsification and components.

    Raises
    ------
    BadInput
        If there is no reference, or the two corpora differ in dimension.
    """
    if "reference" not in facts.corpora:
        raise BadInput("measures.geomca compares with a reference; add one or leave it out")
    dimensions = [corpus.d for corpus in facts.corpora.values()]
    if len(set(dimensions)) > 1:
        raise BadInput(
            f"measures.geomca needs equal dimensions; the corpus has {dimensions[0]} and the "
            f"reference {dimensions[1]}"
        )
    epsilon = section.epsilon if section.epsilon is not None else facts.fixed_scales.get("epsilon")
    needs = ("epsilon",) if epsilon is None else ()
    stages = [_epsilon_stage(section, facts)] if epsilon is None else []
    stages += [_sparsify_stage(section, facts, role, epsilon, needs) for role in facts.corpora]
    rows = sum(_rows(section, facts, role) for role in facts.corpora)
    dimension = dimensions[0]
    stages.append(
        Stage(
            name="geomca",
            work=compare_components,
            needs=(*needs, *(f"sparsify-{role}" for role in facts.corpora)),
            parameters={"epsilon": epsilon, "eta_c": section.eta_c, "eta_q": section.eta_q},
            corpora=tuple(facts.corpora),
            memory_bytes=rows * (dimension * 16 + 200) + 2 * TILE_BYTES,
        )
    )
    return stages


def _rows(section: Geomca, facts: JobFacts, role: Role) -> int:
    n = facts.corpora[role].n
    return n if section.rows is None else min(section.rows, n)


def _epsilon_stage(section: Geomca, facts: JobFacts) -> Stage:
    role = facts.scale_role
    return Stage(
        name="epsilon",
        work=find_epsilon,
        corpora=(role,),
        parameters={"role": role, "percentile": section.percentile},
        seed=facts.seed,
        memory_bytes=facts.corpora[role].points_bytes + 4 * TILE_BYTES,
    )


def _sparsify_stage(
    section: Geomca, facts: JobFacts, role: Role, epsilon: float | None, needs: tuple[str, ...]
) -> Stage:
    return Stage(
        name=f"sparsify-{role}",
        work=sparsify_corpus,
        needs=needs,
        corpora=(role,),
        parameters={
            "role": role,
            "epsilon": epsilon,
            "delta": section.delta,
            "rows": section.rows,
        },
        seed=facts.seed if section.rows is not None else None,
        memory_bytes=2 * facts.corpora[role].points_bytes + 2 * TILE_BYTES,
    )


def find_epsilon(inputs: Inputs) -> Output:
    """Estimate epsilon from two disjoint samples of the reference."""
    p = inputs.parameters
    points = as_points(inputs.corpora[p["role"]].read_all(), "euclidean")
    try:
        epsilon = estimate_epsilon(points, p["percentile"], generator=inputs.generator())
    except ValueError as error:
        return Output(values={"reason": str(error)})
    return Output(values={"epsilon": epsilon})


def _epsilon(inputs: Inputs) -> float | None:
    given = inputs.parameters["epsilon"]
    found = inputs.results["epsilon"].values.get("epsilon") if given is None else given
    return None if found is None else float(found)


def _without_epsilon(inputs: Inputs) -> Output:
    return Output(values={"reason": inputs.results["epsilon"].values["reason"]})


def sparsify_corpus(inputs: Inputs) -> Output:
    """Thin out a corpus (or a random part of it) so that kept rows are more than delta apart."""
    p = inputs.parameters
    epsilon = _epsilon(inputs)
    if epsilon is None:
        return _without_epsilon(inputs)
    corpus = inputs.corpora[p["role"]]
    rows = np.arange(corpus.n)
    if p["rows"] is not None and p["rows"] < corpus.n:
        rows = np.sort(inputs.generator().choice(corpus.n, p["rows"], replace=False))
    vectors = corpus.read_all() if len(rows) == corpus.n else corpus.read_index(rows)
    thinned = sparsify(as_points(vectors, "euclidean"), p["delta"] * epsilon)
    return Output(
        values={"considered": len(rows)},
        arrays={
            "rows": rows,
            "kept": thinned.kept,
            "representative": thinned.representative,
        },
    )


def compare_components(inputs: Inputs) -> Output:
    """Build the graph on both sparse corpora, and score its components."""
    p = inputs.parameters
    epsilon = _epsilon(inputs)
    if epsilon is None:
        return _without_epsilon(inputs)
    points, stands_for, membership = {}, {}, {}
    thinned: dict[str, Sparsification] = {}
    for role in ("reference", "corpus"):
        published = inputs.results[f"sparsify-{role}"]
        rows = published.array("rows")
        thinned[role] = Sparsification(published.array("kept"), published.array("representative"))
        kept_rows = rows[thinned[role].kept]
        points[role] = as_points(inputs.corpora[role].read_index(kept_rows), "euclidean")
        stands_for[role] = thinned[role].rows
    components = epsilon_components(points["reference"], points["corpus"], epsilon)
    scores = geomca_scores(
        components,
        eta_c=p["eta_c"],
        eta_q=p["eta_q"],
        reference_rows=stands_for["reference"],
        corpus_rows=stands_for["corpus"],
    )
    for role in ("reference", "corpus"):
        labels = getattr(components, f"labels_{role}")
        position = np.searchsorted(thinned[role].kept, thinned[role].representative)
        membership[f"membership_{role}"] = labels[position]
    return Output(
        values={
            "epsilon": epsilon,
            "scores": asdict(scores),
            "sizes": {
                "reference": len(thinned["reference"].representative),
                "corpus": len(thinned["corpus"].representative),
                "reference_sparse": len(points["reference"]),
                "corpus_sparse": len(points["corpus"]),
            },
        },
        arrays={name: getattr(components, name) for name in COMPONENT_ARRAYS} | membership,
    )


def collect_geomca(section: Geomca, facts: JobFacts, results: Results) -> Findings:
    """Collect global scores and the largest components."""
    published = results("geomca")
    values = published.values
    if "reason" in values:
        reason = str(values["reason"])
        return Findings(None, [Score.unknown(reason, **_fields(n)) for n in SCORES], reason=reason)
    components = Components(**{name: published.array(name) for name in COMPONENT_ARRAYS})
    found = {
        "epsilon": values["epsilon"],
        "delta": section.delta * values["epsilon"],
        "percentile": None
        if "epsilon" in facts.fixed_scales or section.epsilon is not None
        else section.percentile,
        **values["scores"],
        "eta_c": section.eta_c,
        "eta_q": section.eta_q,
        "sizes": values["sizes"],
        "component_count": len(components),
        "components": _listed(components),
    }
    scores = [
        Score.known(
            Estimate.exact(values["scores"][name], "greedy sparsification"), **_fields(name)
        )
        for name in SCORES
    ]
    arrays = {
        f"geomca/{name.replace('_', '/')}": published.path(name)
        for name in ("membership_reference", "membership_corpus")
    }
    arrays |= {f"geomca/components/{name}": published.path(name) for name in COMPONENT_ARRAYS}
    # Membership is given for the rows considered: all of them, unless geomca.rows drew some.
    arrays |= {f"geomca/rows/{r}": results(f"sparsify-{r}").path("rows") for r in facts.corpora}
    return Findings(found, scores, arrays)


def _fields(score: str) -> dict[str, Any]:
    return {
        "measure": "geomca",
        "of": "pair",
        "score": score,
        "unit": "fraction",
        "better": "high",
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
