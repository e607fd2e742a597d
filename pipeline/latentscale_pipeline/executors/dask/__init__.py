"""Executors on Dask: the only package that imports the distributed scheduler."""
