"""Executors on Dask. Only this package imports ``distributed``."""
