"""The scores of heat traces."""

from latentscale_pipeline.results.definitions import ScoreDefinition, define_scores

SCORES = define_scores(
    "heat",
    {
        "imd": ScoreDefinition(
            "Intrinsic distance (IMD)",
            "The largest gap between the two heat traces over all times, weighted so that "
            "times near 1 count most. 0 means the same shape at every scale; rotation, scale and "
            "dimension of the corpora do not matter.",
            better="low",
            headline=True,
            relation="distance",
            least=0.0,
            error_method="samples",
        ),
        "heat_trace": ScoreDefinition(
            "Heat trace",
            "The heat that remains where it started after the given diffusion time: at short "
            "times it depends on local neighbourhoods, at long times on how well connected the "
            "whole corpus is.",
            headline=True,
            least=0.0,
            averages_rows=True,
            error_method="samples",
        ),
    },
)
