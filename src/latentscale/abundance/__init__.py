"""Neighbourhoods in which one of two corpora has more or fewer rows than chance explains."""
