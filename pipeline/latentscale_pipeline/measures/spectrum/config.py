"""The section ``measures.spectrum`` of the configuration."""

from __future__ import annotations

from typing import ClassVar

from latentscale_pipeline.config.section import Section


class SpectrumSection(Section):
    """Effective dimensions of the covariance, and the lengths of rows. It has no settings."""

    by_default: ClassVar[bool] = False
