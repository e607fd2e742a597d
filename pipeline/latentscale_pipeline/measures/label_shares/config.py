"""The section ``measures.label_shares`` of the configuration."""

from __future__ import annotations

from typing import ClassVar

from latentscale_pipeline.config.section import Section


class LabelShares(Section):
    """Which labels are more or less frequent than in the reference. It has no settings."""

    by_default: ClassVar[bool] = False
