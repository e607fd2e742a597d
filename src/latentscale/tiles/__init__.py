"""Tiles: distances, exponentials and top-k lists of all pairs of two row blocks."""
