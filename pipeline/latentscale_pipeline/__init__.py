"""Runs the measures at scale: corpora, jobs, stages and executors."""
