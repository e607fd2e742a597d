"""Stages as data, the work of one task, and the loop that runs what is missing."""
