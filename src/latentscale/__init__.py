"""Shape and diversity of embedding corpora: arrays in, numbers out."""

import os
import tempfile
from pathlib import Path

from latentscale.estimate import Bounds, Estimate

__version__ = "0.1.0"

__all__ = ["Bounds", "Estimate", "__version__"]


def _find_a_place_for_compiled_code() -> None:
    """Give numba a private temporary folder where it would find none and refuse to compile.

    It keeps compiled functions beside the source or in the user's cache folder; in a container
    with neither writable, importing any measure would fail.
    """
    if "NUMBA_CACHE_DIR" in os.environ or os.access(Path(__file__).parent, os.W_OK):
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "numba"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="latentscale-compiled-")


_find_a_place_for_compiled_code()
