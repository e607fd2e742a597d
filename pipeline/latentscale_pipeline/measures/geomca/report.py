"""The part of the report about GeomCA: components, examples, isolated rows, a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from latentscale_pipeline.measures.base import MeasureReport
from latentscale_pipeline.measures.geomca.results import (
    Component,
    GeomcaResults,
    GeomcaScores,
    GeomcaSetting,
    Row,
)
from latentscale_pipeline.measures.geomca.scores import SCORES
from latentscale_pipeline.results.model import Results
from latentscale_pipeline.views.content import Table, table_of
from latentscale_pipeline.views.figure import DASHES, ROLE_STYLES, Curve, Figure, Panel, Style
from latentscale_pipeline.views.formatting import counted, format_number, printable

SHOWN_COMPONENT_ROWS = 15
"""Components in the table."""

SHARED = Style("of both", "gap")
DIAGONAL = Style("", "gap", DASHES[1])


class GeomcaReport(MeasureReport):
    """How much of the reference a corpus covers."""

    group = "Coverage"
    title = "Coverage: GeomCA"
    question = (
        "Both corpora are thinned, points closer than ε are joined, and every connected component "
        "is described by how many points of each corpus it has and how well they mix."
    )
    source = "Poklukar et al., GeomCA, ICML 2021, definitions 2.1 to 3.1"
    scores = SCORES

    def figures(self, found: GeomcaResults, results: Results) -> list[Figure]:
        """Draw the stored components by the points that they hold of each corpus."""
        if not found.components:
            return []
        count = found.component_count
        stored = len(found.components)
        which = "Every component" if count in (None, stored) else f"The {stored:,} largest"
        of_all = "" if count in (None, stored) else f" of {count:,} components"
        caption = (
            f"{which}{of_all} by the thinned points that it holds of each corpus. On the dashed "
            "line it has equally many of both; at the edges, named none, it has points of one "
            "corpus only, which the other doesn't cover."
        )
        panel = Panel(
            "",
            "points of the reference",
            "points of the corpus",
            _components(found.components),
            log_x=True,
            log_y=True,
            zeros=True,
            scattered=True,
            height=260,
        )
        return [Figure("geomca-components", "Components", caption, [panel])]

    def tables(self, found: GeomcaResults) -> list[Table]:
        """Return tables of the largest components, the outliers and the sweep, if there are any."""
        return [
            _components_table(found),
            *_outliers_tables(found),
            *([_sweep_table(found.sweep)] if found.sweep else []),
        ]

    def notes(self, found: GeomcaResults) -> list[str]:
        """Return notes on thinning, order of the rows, epsilon, outliers and delta."""
        sizes, outliers = found.sizes, found.outliers
        notes = [
            (
                f"Thinning kept {sizes.corpus_sparse:,} of {sizes.corpus:,} rows of the corpus "
                f"and {sizes.reference_sparse:,} of {sizes.reference:,} rows of the reference."
            ),
            _order_note(found.orders or []),
        ]
        if found.epsilon_lower is not None and found.epsilon_upper is not None:
            low, high = format_number(found.epsilon_lower), format_number(found.epsilon_upper)
            notes.append(
                f"The scores hold for this ε. It was estimated from samples ({low} to {high}), and "
                "no bracket of a score contains that uncertainty."
            )
        if outliers is not None:
            notes.append(
                f"{counted(outliers.corpus, 'row')} of the corpus and "
                f"{counted(outliers.reference, 'row')} of the reference are isolated: they lie in "
                "components of a single thinned point. Their numbers, and the component of every "
                "row, are among the arrays of the job."
            )
        if found.delta >= found.epsilon:
            notes.insert(
                0,
                "With δ = ε quality is uninformative: two points of one corpus that are left after "
                "thinning are farther apart than ε, so every remaining edge joins the two corpora "
                "and quality is 1 by construction (0 in a component without edges). A δ below ε "
                "makes it informative.",
            )
        return notes

    def methods(self, found: GeomcaResults) -> list[tuple[str, str]]:
        """Return the distances and thresholds."""
        origin = "given"
        if found.percentile is not None:
            origin = f"percentile {format_number(found.percentile)} of distances"
        if found.epsilon_lower is not None and found.epsilon_upper is not None:
            low, high = format_number(found.epsilon_lower), format_number(found.epsilon_upper)
            origin += f", {low} to {high} over samples"
        settings = (
            f"ε = {format_number(found.epsilon)} ({origin}), "
            f"δ = {format_number(found.delta)}, η_c = {format_number(found.eta_c)}, "
            f"η_q = {format_number(found.eta_q)}"
        )
        return [("GeomCA", settings)]


def _sweep_table(sweep: Sequence[GeomcaSetting]) -> Table:
    rows = [
        {
            "ε": format_number(entry.epsilon),
            "δ": format_number(entry.delta),
            "η_c": format_number(entry.eta_c),
            "η_q": format_number(entry.eta_q),
            "precision": f"{entry.precision:.3f}",
            "recall": f"{entry.recall:.3f}",
            "consistency": f"{entry.consistency:.3f}",
            "quality": f"{entry.quality:.3f}",
            "components": f"{entry.component_count:,}",
        }
        for entry in sweep
    ]
    return table_of("Scores at other distances and thresholds", rows, numeric=rows[0])


def _components_table(geomca: GeomcaResults) -> Table:
    components = geomca.components[:SHOWN_COMPONENT_ROWS]
    roles = ("reference", "corpus") if any(c.examples for c in components) else ()
    numbers = [
        {
            "rank": f"{component.rank}",
            "points": f"{component.size:,}",
            "reference": f"{component.n_reference:,}",
            "corpus": f"{component.n_corpus:,}",
            "consistency": f"{component.consistency:.3f}",
            "quality": f"{component.quality:.3f}",
            "edges": f"{component.edges:,}",
        }
        for component in components
    ]
    examples = [
        {
            f"rows of the {role}, such as": _examples(getattr(component.examples, role, []))
            for role in roles
        }
        for component in components
    ]
    return table_of(
        f"The {len(components)} largest components (counts of thinned points)",
        [{**row, **named} for row, named in zip(numbers, examples, strict=True)],
        numeric=numbers[0] if numbers else (),
    )


def _outliers_tables(geomca: GeomcaResults) -> list[Table]:
    counts, examples = geomca.outliers, geomca.outlier_examples
    if counts is None or examples is None:
        return []
    rows = [
        {
            "of the": role,
            "rows": f"{getattr(counts, role):,}",
            "examples": _examples(getattr(examples, role)) or "none",
        }
        for role in ("corpus", "reference")
    ]
    return [table_of("Isolated rows, such as", rows, numeric=("rows",))]


def _examples(rows: Sequence[Row]) -> str:
    """Name rows by their ids, or by their numbers if they have none."""
    return ", ".join(f"row {row.row}" if row.id is None else printable(row.id) for row in rows)


def _order_note(orders: Sequence[GeomcaScores]) -> str:
    note = (
        "The scores depend on the order of the rows: thinning keeps the first of several close "
        "rows, so another order keeps other rows."
    )
    if not orders:
        return f"{note} To measure this effect, set replicates.count."
    ranges = [
        f"{score} from {format_number(min(values))} to {format_number(max(values))}"
        for score in ("precision", "recall")
        for values in ([getattr(order, score) for order in orders],)
    ]
    return (
        f"{note} Over {len(orders)} random orders: {' and '.join(ranges)}. The brackets contain "
        "this effect."
    )


def _components(components: Sequence[Component]) -> list[Curve]:
    """Return the components of both corpora and of one only; equal ones are one point."""
    counts = Counter((component.n_reference, component.n_corpus) for component in components)
    most = max(min(sizes) for sizes in counts)
    curves = [Curve("", [1, most], [1, most], style=DIAGONAL)] if most > 1 else []
    kinds = {
        SHARED: [sizes for sizes in counts if all(sizes)],
        ROLE_STYLES["corpus"]: [sizes for sizes in counts if not sizes[0]],
        ROLE_STYLES["reference"]: [sizes for sizes in counts if not sizes[1]],
    }
    for style, found in kinds.items():
        if not found:
            continue
        name = style.name if style is SHARED else f"of the {style.name} only"
        texts = [
            f"{counted(counts[sizes], 'component')} with {sizes[1]:,} of the corpus and "
            f"{sizes[0]:,} of the reference"
            for sizes in found
        ]
        across, up = zip(*found, strict=True)
        curves.append(Curve(name, across, up, points=True, style=style, texts=texts))
    return curves
