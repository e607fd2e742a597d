"""The scores of abundance."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores
from latentscale_pipeline.results.model import SHARE_OF_ROWS

SCORES = define_scores(
    "abundance",
    {
        "depleted": ScoreDefinition(
            "Reference rows of rarer kinds",
            "Share of the reference's rows near which there are fewer rows of the corpus than "
            "chance explains (p of 0.001 each): kinds that the corpus has less of, or lacks.",
            unit=SHARE_OF_ROWS,
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
        ),
        "enriched": ScoreDefinition(
            "Rows of more frequent kinds",
            "Share of the corpus's rows near which there are more rows of the corpus than chance "
            "explains (p of 0.001 each): kinds that it has more of than the reference.",
            unit=SHARE_OF_ROWS,
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
        ),
    },
)
