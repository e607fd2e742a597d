"""The measures as stages: one module each, independent of the others."""

from latentscale_pipeline.stages.baselines import BASELINES
from latentscale_pipeline.stages.geomca import GEOMCA
from latentscale_pipeline.stages.heat import HEAT
from latentscale_pipeline.stages.magnitude import MAGNITUDE
from latentscale_pipeline.stages.measure import Measure
from latentscale_pipeline.stages.vendi import VENDI

MEASURES: dict[str, Measure] = {
    "heat": HEAT,
    "geomca": GEOMCA,
    "magnitude": MAGNITUDE,
    "vendi": VENDI,
    "baselines": BASELINES,
}
"""Every measure by its name in the configuration and in the results."""

__all__ = ["MEASURES"]
