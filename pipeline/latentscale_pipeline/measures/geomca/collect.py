"""The findings of GeomCA: its part of the results, scores and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np

from latentscale.estimate import Estimate, student_quantile
from latentscale.geomca.epsilon_graph import Components
from latentscale.geomca.scores import GeomcaScores, geomca_scores
from latentscale_pipeline.measures.base import Findings, JobFacts, Results, load_estimate
from latentscale_pipeline.measures.geomca import results as model
from latentscale_pipeline.measures.geomca.config import Geomca, GeomcaSweep
from latentscale_pipeline.measures.geomca.epsilon_graph import COMPONENT_ARRAYS, ROLES
from latentscale_pipeline.measures.geomca.results import Component, GeomcaResults, GeomcaSetting
from latentscale_pipeline.measures.geomca.scores import SCORES
from latentscale_pipeline.measures.geomca.settings import (
    considered_rows,
    own_setting,
    replicate_settings,
    swept_settings,
)
from latentscale_pipeline.storage.artifacts import Artifact

LISTED_COMPONENTS = 200
"""Number of components in results.json, largest first; the store has all."""

METHOD = "greedy sparsification"


def collect_geomca(section: Geomca, facts: JobFacts, results: Results) -> Findings:
    """Collect global scores and the largest components."""
    artifact = results(own_setting(section).graph)
    rows = considered_rows(section, facts)
    drawn = any(rows[role] < corpus.n for role, corpus in facts.corpora.items())
    # More rows at the same epsilon cover more, unless both corpora are samples of fixed size.
    grows = any(rows[role] == corpus.n for role, corpus in facts.corpora.items())
    if "reason" in artifact.values:
        reason = str(artifact.values["reason"])
        unknown = tuple(
            definition.score(None, "pair", reason=reason, size_dependent=grows)
            for definition in SCORES.values()
        )
        return Findings(None, unknown, reason=reason)
    epsilon = artifact.values["epsilon"]
    components = _components(artifact)
    scores = _scores(artifact, components, section.eta_c, section.eta_q)
    orders = [
        _scores(graph, _components(graph), section.eta_c, section.eta_q)
        for graph in (results(s.graph) for s in replicate_settings(section, facts))
    ]
    found = GeomcaResults(
        epsilon=epsilon,
        **_origin_of_epsilon(section, facts, results),
        delta=section.delta * epsilon,
        **asdict(scores),
        eta_c=section.eta_c,
        eta_q=section.eta_q,
        sizes=artifact.values["sizes"],
        outliers=artifact.values["outliers"],
        component_count=len(components),
        components=_largest(components),
        orders=[model.GeomcaScores(**asdict(other)) for other in orders] or None,
        sweep=None if section.sweep is None else _swept(section, section.sweep, results),
    )
    known = tuple(
        definition.score(
            _over_orders(
                getattr(scores, name), [getattr(other, name) for other in orders], drawn=drawn
            ),
            "pair",
            size_dependent=grows,
        )
        for name, definition in SCORES.items()
    )
    return Findings(found, known, _arrays(section, artifact, results))


def _components(artifact: Artifact) -> Components:
    return Components(**{name: artifact.array(name) for name in COMPONENT_ARRAYS})


def _scores(artifact: Artifact, components: Components, eta_c: float, eta_q: float) -> GeomcaScores:
    return geomca_scores(
        components,
        eta_c=eta_c,
        eta_q=eta_q,
        reference_rows=artifact.array("rows_reference"),
        corpus_rows=artifact.array("rows_corpus"),
    )


def _origin_of_epsilon(section: Geomca, facts: JobFacts, results: Results) -> dict[str, Any]:
    if section.epsilon is not None or "epsilon" in facts.fixed_scales:
        return {"percentile": None}
    estimate = load_estimate(results("epsilon").values["estimate"])
    return {
        "epsilon_lower": estimate.lower,
        "epsilon_upper": estimate.upper,
        "percentile": section.percentile,
    }


def _over_orders(value: float, others: Sequence[float], *, drawn: bool) -> Estimate:
    """Bracket a score by its values under other orders of the rows.

    The score of random rows is an estimate of that of all rows, of which nothing is known but that
    it is a share. A bracket by orders that all give the same is an estimate, too: it leaves no room
    for one in five orders that doesn't.
    """
    if not others:
        return (
            Estimate(value, 0.0, 1.0, "estimate", METHOD)
            if drawn
            else Estimate.exact(value, METHOD)
        )
    count, lowest, highest = len(others), min(others), max(others)
    # In floating point, the mean of equal numbers can differ from them, and so can their spread
    # from 0.
    mean = min(max(float(np.mean(others)), lowest), highest)
    spread = float(np.std(others, ddof=1)) if lowest < highest else 0.0
    method = f"{METHOD}, {count} random row orders"
    if drawn:
        return Estimate(value, 0.0, 1.0, "estimate", method, spread)
    half = student_quantile(0.975, count - 1) * spread * math.sqrt(1 + 1 / count)
    return Estimate(
        value,
        min(value, max(0.0, mean - half)),
        max(value, min(1.0, mean + half)),
        "estimate" if spread == 0.0 else "interval95",
        method,
        spread,
    )


def _swept(section: Geomca, sweep: GeomcaSweep, results: Results) -> list[GeomcaSetting]:
    entries = []
    own = results(own_setting(section).graph).values["epsilon"]
    thresholds = list(product(sweep.eta_c or [section.eta_c], sweep.eta_q or [section.eta_q]))
    for setting in swept_settings(section):
        artifact = results(setting.graph)
        components = _components(artifact)
        entries += [
            GeomcaSetting(
                epsilon=artifact.values["epsilon"],
                delta=setting.delta * own,
                eta_c=eta_c,
                eta_q=eta_q,
                **asdict(_scores(artifact, components, eta_c, eta_q)),
                sizes=artifact.values["sizes"],
                component_count=len(components),
            )
            for eta_c, eta_q in thresholds
        ]
    return entries


def _arrays(section: Geomca, artifact: Artifact, results: Results) -> Mapping[str, str]:
    arrays = {f"geomca/components/{name}": artifact.path(name) for name in COMPONENT_ARRAYS}
    for role in ROLES:
        thinned = results(own_setting(section).thinned(role))
        # Membership covers the rows considered: all rows, unless some were drawn.
        arrays[f"geomca/membership/{role}"] = artifact.path(f"membership_{role}")
        arrays[f"geomca/outliers/{role}"] = artifact.path(f"outliers_{role}")
        arrays[f"geomca/rows/{role}"] = thinned.path("rows")
        arrays[f"geomca/kept/{role}"] = thinned.path("kept_rows")
        arrays[f"geomca/representative/{role}"] = thinned.path("representative")
    return arrays


def _largest(components: Components) -> list[Component]:
    return [
        Component(
            rank=rank,
            size=int(components.size[rank]),
            n_reference=int(components.n_reference[rank]),
            n_corpus=int(components.n_corpus[rank]),
            consistency=float(components.consistency[rank]),
            quality=float(components.quality[rank]),
            edges=int(components.edges[rank]),
        )
        for rank in range(min(len(components), LISTED_COMPONENTS))
    ]
