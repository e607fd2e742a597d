"""The scores of conditional diversity."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "conditional",
    {
        "conditional Vendi": ScoreDefinition(
            "Conditional Vendi score",
            "Effective number of kinds of outputs, the prompt being known; 1 if equal prompts have "
            "equal outputs and different prompts are far apart.",
            unit="effective items",
            better="high",
            headline=True,
            least=1.0,
            error_method="jackknife",
            error_freedom=99,
        ),
        "information Vendi": ScoreDefinition(
            "Information Vendi score",
            "Effective number of kinds of outputs that prompts tell apart; with many pairs 1 if "
            "outputs have nothing to do with prompts.",
            unit="effective items",
            headline=True,
            least=1.0,
            error_method="jackknife",
            error_freedom=99,
        ),
        "Scendi": ScoreDefinition(
            "Scendi score",
            "Effective number of directions of the outputs beyond what is linear in their prompts; "
            "1 if prompts determine outputs.",
            unit="effective items",
            better="high",
            headline=True,
            least=1.0,
            error_method="jackknife",
            error_freedom=99,
        ),
        "explained share": ScoreDefinition(
            "Explained by prompts",
            "Share of the outputs' variance that the best linear prediction from prompts explains, "
            "less what it would explain by chance.",
            unit="share",
            size_dependent=False,
            headline=True,
            most=1.0,
            error_method="jackknife",
            error_freedom=99,
        ),
    },
)
