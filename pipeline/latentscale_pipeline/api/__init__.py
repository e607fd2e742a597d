"""Measure arrays in memory, for notebooks and scripts.

The functions are available as ``latentscale.vendi_score`` and so on, which imports this package on
first use, because ``latentscale`` itself doesn't depend on jobs.

The numbers equal those of ``latentscale run`` on the same rows with the same settings and seed: the
same stages compute them, the same rules choose the method, and every number has the same bracket.
Everything is computed in the calling thread, and nothing is written. ``latentscale.run`` runs a
whole job instead, with all measures, the verdict and the report in a folder.

A contiguous array of float32 or float16 is read in place; any other array is copied once, in the
type in which a corpus is stored. In addition, a call needs the memory of one task of a job and of
the results of its stages.
"""

from latentscale_pipeline.api.comparison import CheckedGates, JobComparison
from latentscale_pipeline.api.findings import (
    DiverseRows,
    GeomcaFindings,
    HeatTraceFindings,
    ImdFindings,
    MagnitudeFindings,
    MmdFindings,
    VendiFindings,
)
from latentscale_pipeline.api.functions import (
    diverse_rows,
    geomca_scores,
    heat_trace,
    imd,
    magnitude_function,
    mmd_test,
    vendi_score,
)
from latentscale_pipeline.api.job import JobResults, Rows, Scores, read_job, run

__all__ = [
    "CheckedGates",
    "DiverseRows",
    "GeomcaFindings",
    "HeatTraceFindings",
    "ImdFindings",
    "JobComparison",
    "JobResults",
    "MagnitudeFindings",
    "MmdFindings",
    "Rows",
    "Scores",
    "VendiFindings",
    "diverse_rows",
    "geomca_scores",
    "heat_trace",
    "imd",
    "magnitude_function",
    "mmd_test",
    "read_job",
    "run",
    "vendi_score",
]
