"""Modes: kinds of rows that are more frequent in one of two corpora."""
