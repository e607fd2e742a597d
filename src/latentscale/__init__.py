"""Shape and diversity of embedding corpora: arrays in, numbers out.

>>> import latentscale
>>> latentscale.vendi_score(rows)[1]  # doctest: +SKIP

``vendi_score``, ``magnitude_function``, ``heat_trace``, ``imd``, ``geomca_scores`` and ``mmd_test``
take arrays and return the same numbers as a job. ``diverse_rows`` chooses rows. ``run`` runs a
whole job, and ``read_job`` reads one that is finished. The subpackages contain the mathematics.
"""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentscale.estimate import Bounds, Estimate

if TYPE_CHECKING:
    from latentscale_pipeline.api import (
        diverse_rows,
        geomca_scores,
        heat_trace,
        imd,
        magnitude_function,
        mmd_test,
        read_job,
        run,
        vendi_score,
    )

__version__ = "0.1.0"

__all__ = [
    "Bounds",
    "Estimate",
    "__version__",
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

_OF_ARRAYS = frozenset(__all__) - {"Bounds", "Estimate", "__version__"}


def __getattr__(name: str) -> Any:
    if name not in _OF_ARRAYS:
        raise AttributeError(f"module 'latentscale' has no attribute {name!r}")
    # Importing a module of the mathematics must not import the pipeline.
    from latentscale_pipeline import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return list(__all__)


def _find_a_place_for_compiled_code() -> None:
    """Give numba a private temporary folder where it can write nowhere else.

    numba keeps compiled functions beside the source or in the user's cache folder. In a container
    where neither is writable it refuses to compile, and importing any measure would fail.
    """
    if "NUMBA_CACHE_DIR" in os.environ or os.access(Path(__file__).parent, os.W_OK):
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "numba"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="latentscale-compiled-")


_find_a_place_for_compiled_code()
