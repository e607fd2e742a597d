"""Representative rows of GeomCA's components and outliers, by id.

GeomCA's components and outliers are sets of rows. A few of each, spread evenly over the set in the
order of the corpus, are named in the results: by number, and by id if the corpus has ids. Only the
components that a report lists get examples. Memberships are read one corpus at a time (16 bytes a
considered row), ids shard by shard, and only the requested ids are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from latentscale.array_types import Int64Array
from latentscale_pipeline.corpus import Corpus
from latentscale_pipeline.measures.base import Findings, Results, Role
from latentscale_pipeline.measures.geomca.config import Geomca
from latentscale_pipeline.measures.geomca.results import GeomcaResults, Row, RowsByRole
from latentscale_pipeline.measures.geomca.settings import own_setting

SHOWN_COMPONENTS = 15
"""Number of components with examples, largest first."""

EXAMPLES = 3
"""Examples of each corpus for a component; outliers have three times as many."""

ROLES: tuple[Role, ...] = ("corpus", "reference")

Rows = Int64Array


def with_representatives(
    section: Geomca, findings: Findings, results: Results, corpora: Mapping[Role, Corpus]
) -> Findings:
    """Return GeomCA's findings with examples of its components and outliers.

    Parameters
    ----------
    section : Geomca
        The measure's settings.
    findings : Findings
        What was found; without a section it is returned as it is.
    results : Results
        Of the stages: the component of every considered row, and the numbers of these rows.
    corpora : mapping of role to Corpus
        Where ids come from.
    """
    found = findings.section
    if not isinstance(found, GeomcaResults):
        return findings
    setting = own_setting(section)
    graph = results(setting.graph)
    shown = found.components[:SHOWN_COMPONENTS]
    examples: dict[Role, list[list[Row]]] = {}
    outliers: dict[Role, list[Row]] = {}
    for role in ROLES:
        rows = results(setting.thinned(role)).array("rows")
        membership = graph.array(f"membership_{role}")
        chosen = [_spread(rows[membership == component.rank], EXAMPLES) for component in shown]
        alone = _spread(graph.array(f"outliers_{role}"), 3 * EXAMPLES)
        names = _name(corpora[role], np.concatenate([*chosen, alone]).astype(np.int64))
        examples[role] = [[names[int(row)] for row in some] for some in chosen]
        outliers[role] = [names[int(row)] for row in alone]
    components = [
        component.model_copy(update={"examples": RowsByRole(corpus=ours, reference=theirs)})
        for component, ours, theirs in zip(
            shown, examples["corpus"], examples["reference"], strict=True
        )
    ]
    named = {
        "components": [*components, *found.components[SHOWN_COMPONENTS:]],
        "outlier_examples": RowsByRole(**outliers),
    }
    return replace(findings, section=found.model_copy(update=named))


def _spread(rows: Rows, count: int) -> Rows:
    """Choose rows of a set at even intervals, with the first and the last."""
    ordered = np.sort(rows)
    if len(ordered) <= count:
        return ordered
    places = np.linspace(0, len(ordered) - 1, count).round().astype(np.int64)
    chosen: Rows = ordered[places]
    return chosen


def _name(corpus: Corpus, rows: Rows) -> dict[int, Row]:
    if "ids" not in corpus.manifest.arrays:
        return {row: Row(row=row) for row in rows.tolist()}
    ids = corpus.texts_at("ids", rows).tolist()
    return {row: Row(row=row, id=name) for row, name in zip(rows.tolist(), ids, strict=True)}
