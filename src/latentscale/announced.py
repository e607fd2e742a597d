"""Measures of arrays that a distribution announces as entry points.

The mathematics knows nothing of how jobs are run. What runs jobs can measure arrays as well, and
says so in the metadata of its distribution; here it is found by name.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

ARRAY_MEASURES = "latentscale.arrays"
"""The group of these entry points."""


def array_measure(name: str) -> Any:
    """Return the function that measures arrays under this name.

    Raises
    ------
    AttributeError
        If none is announced.
    """
    for announced in entry_points(group=ARRAY_MEASURES, name=name):
        return announced.load()
    raise AttributeError(f"module 'latentscale' has no attribute {name!r}")
