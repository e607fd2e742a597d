"""Every measure, by its name in the configuration and in the results."""

from latentscale_pipeline.measures import (
    baselines,
    duplicates,
    geomca,
    heat,
    label_shares,
    magnitude,
    vendi,
)
from latentscale_pipeline.measures.base import Measure

MEASURES: dict[str, Measure] = {
    "duplicates": duplicates.MEASURE,
    "label_shares": label_shares.MEASURE,
    "heat": heat.MEASURE,
    "geomca": geomca.MEASURE,
    "magnitude": magnitude.MEASURE,
    "vendi": vendi.MEASURE,
    "baselines": baselines.MEASURE,
}
"""All measures, in the order of the report."""
