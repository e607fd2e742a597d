"""Corpora, jobs, stages and clusters: how the measures are run at scale."""
