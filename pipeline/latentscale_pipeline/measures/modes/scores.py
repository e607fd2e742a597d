"""The scores of modes."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "modes",
    {
        "novel": ScoreDefinition(
            "Largest novel mode",
            "By how much the kind of rows that gained most is more frequent than in the "
            "reference; chance alone makes one, too.",
            unit="mean squared cosine",
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
            error_method="jackknife",
        ),
        "missing": ScoreDefinition(
            "Largest missing mode",
            "By how much the kind of rows that lost most is less frequent than in the reference; "
            "chance alone makes one, too.",
            unit="mean squared cosine",
            better="low",
            headline=True,
            least=0.0,
            most=1.0,
            error_method="jackknife",
        ),
    },
)
