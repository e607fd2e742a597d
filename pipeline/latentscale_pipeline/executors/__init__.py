"""Where tasks run: in this process, on Dask workers, or as plain processes."""
