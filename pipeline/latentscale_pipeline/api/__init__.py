"""The measures of arrays in memory, for notebooks and scripts.

They are reached as ``latentscale.vendi_score`` and so on, which imports this package on first use:
the mathematics in ``latentscale`` knows nothing of jobs.

The numbers are those of ``latentscale run`` on the same rows, with the same keys and seed: the
same stages compute them, the method is chosen by the same rules, and the same bracket stands
beside every number. Everything is computed in the calling thread, and nothing is written.

An array of float32 or float16 that is contiguous is read where it is; any other is copied once, in
the type in which a corpus is stored. Beside that, a call holds what one task of a job holds, and
the results of its stages.
"""

from latentscale_pipeline.api.findings import (
    GeomcaFindings,
    HeatTraceFindings,
    ImdFindings,
    MagnitudeFindings,
    VendiFindings,
)
from latentscale_pipeline.api.functions import (
    geomca_scores,
    heat_trace,
    imd,
    magnitude_function,
    vendi_score,
)

__all__ = [
    "GeomcaFindings",
    "HeatTraceFindings",
    "ImdFindings",
    "MagnitudeFindings",
    "VendiFindings",
    "geomca_scores",
    "heat_trace",
    "imd",
    "magnitude_function",
    "vendi_score",
]
