"""Results of the conditional diversity: its part of ``measures`` in the results."""

from __future__ import annotations

from pydantic import ConfigDict, NonNegativeFloat

from latentscale_pipeline.measures.shared.unpaired import UnpairedRows
from latentscale_pipeline.results.part import Absent, Count, Part, Reason


class ConditionalResults(Part):
    """The diversity of outputs, their prompts being known."""

    model_config = ConfigDict(title="conditional")

    by: str
    """What pairs rows: `rows` or `ids`."""
    common: Count
    """Pairs of rows there are; estimated for corpora of more than 200 000 rows with ids."""
    pairs: Count
    """Pairs of the Scendi score and the explained share; 0 if there are fewer than 100."""
    kernel: str
    """Kernel of the Vendi scores."""
    kernel_pairs: Count
    """Pairs of the Vendi scores."""
    bandwidth: Absent[NonNegativeFloat] = None
    """Bandwidth σ for the corpus."""
    reference_bandwidth: Absent[NonNegativeFloat] = None
    """The same for the reference."""
    information_by_chance: Absent[NonNegativeFloat] = None
    """The information Vendi score of the same pairs with the prompts of other rows."""
    corpus: UnpairedRows
    """Rows of the corpus without a partner."""
    reference: UnpairedRows
    """Rows of the reference without a partner."""
    reason: Absent[Reason] = None
