"""GeomCA: sparsification, epsilon, and scores of components."""
