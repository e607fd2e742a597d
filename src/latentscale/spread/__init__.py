"""The spread of a corpus: how many rows it has that are far from all others."""
