"""What GeomCA's section says beside its scores: components, their examples, outliers, a sweep."""

from __future__ import annotations

from typing import Any

from latentscale_pipeline.notation import counted, printable, write_number
from latentscale_pipeline.report.content import Table

Json = dict[str, Any]

SHOWN_COMPONENT_ROWS = 15
"""Components in the table; the chart shows more and the store holds all."""


def geomca_tables(geomca: Json) -> list[Table]:
    """Return the largest components, the outliers and the sweep, as far as there are any."""
    return [
        _components_table(geomca),
        *([_outliers_table(geomca)] if "outlier_examples" in geomca else []),
        *([_sweep_table(geomca)] if geomca.get("sweep") else []),
    ]


def _sweep_table(geomca: Json) -> Table:
    settings = ("epsilon", "delta", "eta_c", "eta_q")
    scores = ("precision", "recall", "consistency", "quality")
    return Table(
        caption="Scores at other distances and thresholds",
        header=("ε", "δ", "η_c", "η_q", *scores, "components"),
        rows=[
            (
                *(write_number(entry[name]) for name in settings),
                *(f"{entry[name]:.3f}" for name in scores),
                f"{entry['component_count']:,}",
            )
            for entry in geomca["sweep"]
        ],
        numeric=frozenset(range(9)),
    )


def _components_table(geomca: Json) -> Table:
    components = geomca["components"][:SHOWN_COMPONENT_ROWS]
    roles = [role for role in ("reference", "corpus") if any("examples" in c for c in components)]
    return Table(
        caption=f"The {len(components)} largest components (counts of thinned points)",
        header=(
            *("rank", "points", "reference", "corpus", "consistency", "quality", "edges"),
            *(f"rows of the {role}, such as" for role in roles),
        ),
        rows=[
            (
                f"{component['rank']}",
                f"{component['size']:,}",
                f"{component['n_reference']:,}",
                f"{component['n_corpus']:,}",
                f"{component['consistency']:.3f}",
                f"{component['quality']:.3f}",
                f"{component['edges']:,}",
                *(_examples(component.get("examples", {}).get(role, [])) for role in roles),
            )
            for component in components
        ],
        numeric=frozenset(range(7)),
    )


def _outliers_table(geomca: Json) -> Table:
    found = geomca["outlier_examples"]
    roles = ("corpus", "reference")
    return Table(
        caption="Outliers, such as",
        header=("of the", "rows", "examples"),
        rows=[
            (role, f"{geomca['outliers'][role]:,}", _examples(found[role]) or "none")
            for role in roles
        ],
        numeric=frozenset({1}),
    )


def _examples(rows: list[Json]) -> str:
    """Name rows by their ids, or by their places where they have none."""
    return ", ".join(printable(row["id"]) if "id" in row else f"row {row['row']}" for row in rows)


def geomca_notes(geomca: Json) -> list[str]:
    """Return what a reader must know of thinning, order, outliers and delta."""
    sizes = geomca["sizes"]
    notes = [
        (
            f"Thinning kept {sizes['corpus_sparse']:,} of {sizes['corpus']:,} rows of the corpus "
            f"and {sizes['reference_sparse']:,} of {sizes['reference']:,} rows of the reference."
        ),
        _order_note(geomca.get("orders", [])),
    ]
    if "outliers" in geomca:
        outliers = geomca["outliers"]
        notes.append(
            f"{counted(outliers['corpus'], 'row')} of the corpus and "
            f"{counted(outliers['reference'], 'row')} of the reference are outliers: they lie in "
            "components of a single thinned point. Their numbers, and the component of every row, "
            "are among the arrays of the job."
        )
    if geomca["delta"] >= geomca["epsilon"]:
        notes.insert(
            0,
            "With δ = ε quality says nothing: two points of one corpus that are left after "
            "thinning are farther apart than ε, so every remaining edge joins the two corpora and "
            "quality is 1 by construction (0 in a component without edges). A δ below ε makes it "
            "informative.",
        )
    return notes


def _order_note(orders: list[Json]) -> str:
    note = (
        "The scores depend on the order of the rows: thinning keeps the first of several close "
        "rows, so another order keeps other rows."
    )
    if not orders:
        return f"{note} By how much is unknown here; replicates.count repeats it under random ones."
    ranges = [
        f"{score} from {write_number(min(values))} to {write_number(max(values))}"
        for score in ("precision", "recall")
        for values in ([order[score] for order in orders],)
    ]
    return (
        f"{note} Over {len(orders)} random orders {' and '.join(ranges)} came out; the brackets "
        "say where a score lies under another order."
    )
