"""Random subsets: rarefaction and what follows from it for all rows."""
