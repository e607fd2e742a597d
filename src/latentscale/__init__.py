"""Shape and diversity of embedding corpora: arrays in, numbers out."""

__version__ = "0.1.0"
