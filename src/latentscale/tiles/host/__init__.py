"""The arithmetic of tiles on numpy and numba, on one core."""
