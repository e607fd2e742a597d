"""Neighbour graphs, their Laplacians, and epsilon-graphs."""
