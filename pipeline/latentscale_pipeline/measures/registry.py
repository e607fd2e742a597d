"""Every measure, by its name in the configuration and in the results."""

from latentscale_pipeline.measures import (
    abundance,
    alignment,
    baselines,
    conditional,
    duplicates,
    geomca,
    heat,
    hubness,
    intrinsic_dimension,
    label_shares,
    magnitude,
    mmd,
    modes,
    projection,
    spectrum,
    spread,
    vendi,
)
from latentscale_pipeline.measures.base import Measure, RowFilter

MEASURES: dict[str, Measure] = {
    "duplicates": duplicates.MEASURE,
    "projection": projection.MEASURE,
    "label_shares": label_shares.MEASURE,
    "alignment": alignment.MEASURE,
    "conditional": conditional.MEASURE,
    "abundance": abundance.MEASURE,
    "mmd": mmd.MEASURE,
    "modes": modes.MEASURE,
    "heat": heat.MEASURE,
    "geomca": geomca.MEASURE,
    "magnitude": magnitude.MEASURE,
    "vendi": vendi.MEASURE,
    "spread": spread.MEASURE,
    "spectrum": spectrum.MEASURE,
    "intrinsic_dimension": intrinsic_dimension.MEASURE,
    "hubness": hubness.MEASURE,
    "baselines": baselines.MEASURE,
}
"""All measures, in the order of the report."""

ROW_FILTERS: dict[str, RowFilter] = {
    name: found for measure in MEASURES.values() for name, found in measure.row_filters.items()
}
"""The reasons to look at rows, by name."""
