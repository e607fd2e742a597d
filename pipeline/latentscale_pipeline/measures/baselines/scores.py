"""The scores of the baselines."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "baselines",
    {
        "mean similarity": ScoreDefinition(
            "Mean similarity",
            "Mean cosine similarity of two different rows; lower means more diverse.",
            unit="cosine similarity",
            better="low",
        ),
        "IntDiv": ScoreDefinition(
            "IntDiv",
            "One minus the mean cosine similarity of all pairs of rows.",
            unit="1 - cosine similarity",
            better="high",
        ),
        "GMStds": ScoreDefinition(
            "GMStds",
            "Geometric mean of the standard deviations of the coordinates.",
            unit="coordinate",
            better="high",
        ),
        "FID": ScoreDefinition(
            "FID",
            "Fréchet distance of two normal distributions with the corpora's means and "
            "covariances.",
            unit="squared distance",
            better="low",
            headline=True,
            relation="distance",
            least=0.0,
        ),
        "KID": ScoreDefinition(
            "KID",
            "Squared distance of the corpora's mean embeddings under a cubic kernel.",
            unit="kernel",
            better="low",
            headline=True,
            relation="distance",
            error_method="jackknife",
        ),
        "precision": ScoreDefinition(
            "Improved precision",
            "Share of the corpus within the balls that the reference's neighbours span.",
            unit="share",
            better="high",
            headline=True,
            relation="similarity",
            exchanged="recall",
            least=0.0,
            most=1.0,
        ),
        "recall": ScoreDefinition(
            "Improved recall",
            "Share of the reference within the balls that the corpus' nearest neighbours span.",
            unit="share",
            better="high",
            headline=True,
            least=0.0,
            most=1.0,
        ),
        "density": ScoreDefinition(
            "Density",
            "How many of the reference's balls a row of the corpus lies in, over k.",
            unit="balls over k",
            better="high",
            headline=True,
            least=0.0,
        ),
        "coverage": ScoreDefinition(
            "Coverage",
            "Share of the reference's balls that hold a row of the corpus.",
            unit="share",
            better="high",
            headline=True,
            least=0.0,
            most=1.0,
        ),
        "clipped density": ScoreDefinition(
            "Clipped density",
            "Share of the corpus's rows that are as typical as the reference's own: density, which "
            "a few rows can't raise.",
            unit="share",
            better="high",
            least=0.0,
            most=1.0,
        ),
        "clipped coverage": ScoreDefinition(
            "Clipped coverage",
            "Share of good rows that would fill the reference's balls as the corpus does.",
            unit="share",
            better="high",
            least=0.0,
            most=1.0,
        ),
    },
)
