"""The scores of magnitude."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "magnitude",
    {
        "area": ScoreDefinition(
            "MagArea",
            "Area under the magnitude function over the evaluated scales: diversity over all "
            "scales.",
            unit="effective points × 1/distance",
            better="high",
            headline=True,
            least=0.0,
            error_method="jackknife",
        ),
        "convergence_scale": ScoreDefinition(
            "Convergence scale t_conv",
            "The scale at which magnitude has nearly reached the number of distinct points "
            "(95 % of it unless configured otherwise).",
            unit="1/distance",
            least=0.0,
            error_method="jackknife",
        ),
        "difference": ScoreDefinition(
            "MagDiff",
            "Area of the corpus minus the area of the reference over the same scales: above 0 "
            "the corpus is more diverse, below 0 the reference is.",
            unit="effective points × 1/distance",
            better="high",
            error_method="jackknife",
        ),
        "distance": ScoreDefinition(
            "Magnitude distance",
            "What each corpus has that the other hasn't, in effective points at one scale (one "
            "over the median distance unless configured otherwise): twice the magnitude of both "
            "together less that of each. Equal sets of rows have 0, samples of one source more.",
            unit="effective points",
            better="low",
            headline=True,
            relation="distance",
            least=0.0,
            error_method="jackknife",
        ),
    },
)
