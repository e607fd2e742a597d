"""GeomCA: epsilon, sparsification of both corpora, components and their scores."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import numpy as np

from latentscale import Estimate
from latentscale.distances import as_points
from latentscale.geomca import (
    SAMPLE_ROWS,
    Components,
    GeomcaScores,
    Sparsification,
    epsilon_components,
    estimate_epsilon,
    geomca_scores,
    sparsify,
)
from latentscale_pipeline.engine.stage import Effort, Inputs, Stage
from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.job.config import Geomca
from latentscale_pipeline.job.publishing import Output
from latentscale_pipeline.stages.measure import (
    CONVERSION_FOLDS,
    FEW_TILES_BYTES,
    RESULT_BYTES,
    CorpusFacts,
    Findings,
    JobFacts,
    Measure,
    Results,
    Role,
    Score,
)

LISTED_COMPONENTS = 200
"""Components that results.json lists, largest first; all are in the store."""

KEPT_SHARE = 0.25
"""Share of the rows that sparsification is expected to keep."""

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
    stages.append(
        Stage(
            name="geomca",
            work=compare_components,
            needs=(*needs, *(f"sparsify-{role}" for role in facts.corpora)),
            parameters={"epsilon": epsilon, "eta_c": section.eta_c, "eta_q": section.eta_q},
            corpora=tuple(facts.corpora),
            memory_bytes=_components_memory(section, facts),
            effort=_components_effort(section, facts),
        )
    )
    return stages


def _components_memory(section: Geomca, facts: JobFacts) -> int:
    """Bytes when every row is kept: how many are is known only then."""
    largest, total = 0, 0
    for role, corpus in facts.corpora.items():
        rows = _rows(section, facts, role)
        total += rows * ((corpus.d + 1) * 8 + 200)
        stored = corpus.stored_bytes // corpus.n * rows
        largest = max(largest, stored, 2 * corpus.shard_stored_bytes)
    return total + largest + FEW_TILES_BYTES


def _components_effort(section: Geomca, facts: JobFacts) -> Effort:
    rows = sum(_rows(section, facts, role) for role in facts.corpora)
    pairs = (KEPT_SHARE * rows) ** 2 / 2
    d = facts.corpora["corpus"].d
    return Effort(
        bytes_read=sum(corpus.stored_bytes for corpus in facts.corpora.values()) + 24 * rows,
        bytes_written=8 * rows + 40 * int(KEPT_SHARE * rows) + RESULT_BYTES,
        products=pairs * d,
        folds=3 * pairs + CONVERSION_FOLDS * KEPT_SHARE * rows * d,
        method="union and find over tiles",
        why=f"about {KEPT_SHARE:.0%} of the rows are expected to be kept",
    )


def _rows(section: Geomca, facts: JobFacts, role: Role) -> int:
    n = facts.corpora[role].n
    return n if section.rows is None else min(section.rows, n)


def _epsilon_stage(section: Geomca, facts: JobFacts) -> Stage:
    role = facts.scale_role
    corpus = facts.corpora[role]
    sample = min(SAMPLE_ROWS, corpus.n // 2)
    return Stage(
        name="epsilon",
        work=find_epsilon,
        corpora=(role,),
        parameters={"role": role, "percentile": section.percentile},
        seed=facts.seed,
        memory_bytes=corpus.points_bytes + FEW_TILES_BYTES,
        effort=Effort(
            bytes_read=corpus.stored_bytes,
            bytes_written=RESULT_BYTES,
            products=float(sample**2) * corpus.d,
            folds=CONVERSION_FOLDS * corpus.n * corpus.d + 20 * float(sample**2),
            method="percentile of sampled distances",
            why="neither geomca.epsilon nor scales_from gives it",
        ),
    )


def _sparsify_stage(
    section: Geomca, facts: JobFacts, role: Role, epsilon: float | None, needs: tuple[str, ...]
) -> Stage:
    corpus = facts.corpora[role]
    rows = _rows(section, facts, role)
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
        memory_bytes=_sparsify_memory(corpus, rows),
        effort=_sparsify_effort(corpus, rows),
    )


def _sparsify_memory(corpus: CorpusFacts, rows: int) -> int:
    stored = corpus.stored_bytes // corpus.n * rows
    points = max(stored + rows * (corpus.d + 1) * 8, stored + 2 * corpus.shard_stored_bytes)
    drawing = 0 if rows == corpus.n else 16 * corpus.n
    return points + drawing + 48 * rows + FEW_TILES_BYTES


def _sparsify_effort(corpus: CorpusFacts, rows: int) -> Effort:
    # A row that is kept was compared with all that were kept before it, another with half.
    pairs = KEPT_SHARE * float(rows) ** 2 / 2
    return Effort(
        bytes_read=corpus.stored_bytes,
        bytes_written=int((16 + 8 * KEPT_SHARE) * rows) + RESULT_BYTES,
        products=pairs * corpus.d,
        folds=3 * pairs + CONVERSION_FOLDS * rows * corpus.d,
        method="greedy in row order",
        why="all rows" if rows == corpus.n else f"{rows:,} random rows (geomca.rows)",
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
        unknown = [Score.unknown(reason, **_fields(name, section, facts)) for name in SCORES]
        return Findings(None, unknown, reason=reason)
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
            Estimate.exact(values["scores"][name], "greedy sparsification"),
            **_fields(name, section, facts),
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
