"""Shape and diversity of embedding corpora: arrays in, numbers out."""

from latentscale.estimate import Bounds, Estimate

__version__ = "0.1.0"

__all__ = ["Bounds", "Estimate", "__version__"]
