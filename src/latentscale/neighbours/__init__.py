"""Nearest neighbours: exact, approximate in overlapping cells, and the certificate of recall."""
