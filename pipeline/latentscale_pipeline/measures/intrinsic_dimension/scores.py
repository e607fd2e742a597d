"""The scores of intrinsic dimension."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "intrinsic_dimension",
    {
        "MLE": ScoreDefinition(
            "Intrinsic dimension",
            "Number of coordinates that describe a row's nearest neighbours (20 unless configured "
            "otherwise), by maximum likelihood.",
            unit="dimensions",
            headline=True,
            least=0.0,
            error_method="jackknife",
            error_freedom=19,
        ),
        "TwoNN": ScoreDefinition(
            "Intrinsic dimension, TwoNN",
            "The same from the two nearest neighbours of each row alone: at the smallest scale, "
            "where noise and near-duplicates show.",
            unit="dimensions",
            least=0.0,
            error_method="jackknife",
            error_freedom=19,
        ),
    },
)
