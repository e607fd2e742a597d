"""The history of evaluations: a registry of finished jobs, trends over time, baselines.

A registry is a folder or URL with one Parquet file a job, which any number of writers add to and
any tool reads. Only ``scores`` go into it, and what identifies the job they are of.
"""
