"""The measures of arrays in memory, for notebooks and scripts.

They are reached as ``latentscale.vendi_score`` and so on: the mathematics in ``latentscale`` knows
nothing of jobs, so the distribution announces these functions as entry points, and ``latentscale``
looks them up there when they are asked for.

Every call is a small job in a temporary folder, computed in this process. So its numbers are those
of ``latentscale run`` with the same keys and seed, the method is chosen by the same rules, and the
same bracket stands beside every number.
"""

from latentscale_pipeline.arrays.calls import (
    geomca,
    heat_trace,
    imd,
    magnitude_function,
    vendi_score,
)
from latentscale_pipeline.arrays.findings import (
    GeomcaFindings,
    HeatTraceFindings,
    ImdFindings,
    MagnitudeFindings,
    VendiFindings,
)

__all__ = [
    "GeomcaFindings",
    "HeatTraceFindings",
    "ImdFindings",
    "MagnitudeFindings",
    "VendiFindings",
    "geomca",
    "heat_trace",
    "imd",
    "magnitude_function",
    "vendi_score",
]
