"""The figures of the report, one module a measure: an entry of ``measures`` in, figures out."""

from latentscale_pipeline.report.figures.components import geomca_figures
from latentscale_pipeline.report.figures.heat import heat_figures
from latentscale_pipeline.report.figures.magnitude import magnitude_figures
from latentscale_pipeline.report.figures.vendi import vendi_figures

__all__ = ["geomca_figures", "heat_figures", "magnitude_figures", "vendi_figures"]
