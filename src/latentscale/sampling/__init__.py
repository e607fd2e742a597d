"""Random subsets: rarefaction curves and their extrapolation to all rows."""
