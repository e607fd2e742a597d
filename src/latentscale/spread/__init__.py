"""The spread of a corpus: how many rows count as different, at a scale."""
