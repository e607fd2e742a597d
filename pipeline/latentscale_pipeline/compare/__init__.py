"""Comparing a job with a baseline, and gates on what differs.

Only the rows of ``scores`` are compared, so that a new measure takes part by itself; a job's
identity, its measures' settings and the scales they were taken at decide whether two jobs can be
compared at all.
"""
