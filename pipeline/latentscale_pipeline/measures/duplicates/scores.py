"""The scores of rows that repeat others, lie in both corpora, or lie apart."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores
from latentscale_pipeline.results.model import SHARE_OF_ROWS

NEAR_ROWS_LEFT_OUT = (
    "rows near others were left out of a corpus, so nothing says how many are near by chance"
)
"""Why a share of near rows has no expected range."""

NEARLY_THE_SAME = frozenset({"near-duplicates", "covered", "leaks"})
"""Scores that depend on the distance up to which rows are nearly the same."""

SCORES = define_scores(
    "duplicates",
    {
        "exact duplicates": ScoreDefinition(
            "Exact duplicates",
            "Share of the rows that equal another row of their corpus; the cosine distance ignores "
            "lengths.",
            unit=SHARE_OF_ROWS,
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
            error_method="counts",
        ),
        "near-duplicates": ScoreDefinition(
            "Near-duplicates",
            "Share of the rows that are nearly the same as another row of their corpus, or equal.",
            unit=SHARE_OF_ROWS,
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
            error_method="counts",
        ),
        "covered": ScoreDefinition(
            "Redundant rows",
            "Share of the rows that may go, because a row that stays is nearly the same and covers "
            "them.",
            unit=SHARE_OF_ROWS,
            better="low",
            least=0.0,
            most=1.0,
            error_method="counts",
        ),
        "exact leaks": ScoreDefinition(
            "Equal to a reference row",
            "Share of the corpus that equals a row of the reference; the cosine distance ignores "
            "lengths.",
            unit=SHARE_OF_ROWS,
            better="low",
            size_dependent=False,
            headline=True,
            least=0.0,
            most=1.0,
            error_method="counts",
        ),
        "leaks": ScoreDefinition(
            "Also in the reference",
            "Share of the corpus that is nearly the same as a row of the reference, or equal.",
            unit=SHARE_OF_ROWS,
            better="low",
            size_dependent=False,
            headline=True,
            least=0.0,
            most=1.0,
            error_method="counts",
        ),
        "outliers": ScoreDefinition(
            "Outliers",
            "Share of the corpus that is farther from every row of the reference than all but at "
            "most 1 in 5000 of these are from the nearest other one.",
            unit=SHARE_OF_ROWS,
            better="low",
            size_dependent=False,
            headline=True,
            least=0.0,
            most=1.0,
            error_method="counts",
        ),
        "not covered": ScoreDefinition(
            "Reference rows not covered",
            "Share of the reference that is farther from every row of the corpus than all but at "
            "most 1 in 5000 rows of the reference are from the nearest other one.",
            unit=SHARE_OF_ROWS,
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
            error_method="counts",
        ),
    },
)
