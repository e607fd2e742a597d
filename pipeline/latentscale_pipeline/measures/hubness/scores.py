"""The scores of hubness."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "hubness",
    {
        "Robin Hood index": ScoreDefinition(
            "Hubness, Robin Hood index",
            "Share of the places in all lists of nearest neighbours that must move for all rows to "
            "have equally many: 0 if every row is a neighbour of equally many, near 1 if few rows "
            "are the neighbours of all.",
            unit="share",
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
            error_method="jackknife",
            error_freedom=19,
        ),
        "hubness": ScoreDefinition(
            "Hubness, skewness",
            "Skewness of the number of rows that have a row among their nearest neighbours. Few "
            "hubs decide it, so it varies much between samples.",
            unit="skewness",
            better="low",
        ),
        "antihubs": ScoreDefinition(
            "Antihubs",
            "Share of rows that are among the nearest neighbours of no other.",
            unit="share",
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
            error_method="counts",
            error_freedom=19,
        ),
    },
)
