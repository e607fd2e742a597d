"""The history of evaluations: a registry of finished jobs, trends over time, baselines.

A registry is a folder or URL with one Parquet file per job. Any number of writers can add to it,
and any tool can read it. An entry holds only the job's ``scores`` and its identification.
"""
