r"""The arithmetic of tiles, and the only place that chooses a device.

A *tile* is the separations of all pairs of two blocks of rows, with the sums and lists that are
computed from them. Everything that visits every pair of rows is one of the operations below. The
measures call them by name and know nothing of the arrays behind them. At present all of them run on
numpy and numba, on one core and without Python's lock. Another device would provide the same
operations on its own :class:`TileRows`, and would be chosen here.

=============================  ====================================================================
:func:`tile_rows`              rows about an origin, scaled, in the precision of the tiles
:func:`unit_rows`              rows scaled to given lengths
:func:`inner_products`         :math:`x \cdot y` of all pairs
:func:`separations`            squared distances or Manhattan distances of all pairs
:func:`decide`                 which pairs are within a limit, without rounding
:func:`offer_near`             candidates that may be nearest, merged into sorted lists
:func:`shortlist_pairs`        pairs of one block that may be nearest, in short lists of both rows
:func:`shortlist_across`       pairs of two blocks that may be nearest, in short lists of both
:func:`shortlist_candidates`   candidates that may be nearest, in short lists of the queries
:func:`decide_short_lists`     short lists as sorted lists, decided in float64
:func:`exponentials`           exponentials of a whole tile
:func:`fold_similarities`      exponentials at many scales, multiplied with vectors both ways
=============================  ====================================================================
"""

from latentscale.tiles.host.exponentials import (
    EXPONENTIAL_ERROR,
    FOLDED_COLUMNS,
    FOLDED_ROWS,
    MIN_SIMILARITY,
    ROWS_AT_ONCE,
    exponentials,
    fold_similarities,
)
from latentscale.tiles.host.nearest import offer_near
from latentscale.tiles.host.separations import (
    RECOMPUTED_SHARE,
    Precision,
    TileRows,
    decide,
    inner_products,
    rounding_share,
    rounding_unit,
    separations,
    tile_rows,
)
from latentscale.tiles.host.short_lists import (
    ShortLists,
    decide_short_lists,
    shortlist_across,
    shortlist_candidates,
    shortlist_pairs,
)
from latentscale.tiles.host.unit_rows import unit_rows

__all__ = [
    "EXPONENTIAL_ERROR",
    "FOLDED_COLUMNS",
    "FOLDED_ROWS",
    "MIN_SIMILARITY",
    "RECOMPUTED_SHARE",
    "ROWS_AT_ONCE",
    "Precision",
    "ShortLists",
    "TileRows",
    "decide",
    "decide_short_lists",
    "exponentials",
    "fold_similarities",
    "inner_products",
    "offer_near",
    "rounding_share",
    "rounding_unit",
    "separations",
    "shortlist_across",
    "shortlist_candidates",
    "shortlist_pairs",
    "tile_rows",
    "unit_rows",
]
