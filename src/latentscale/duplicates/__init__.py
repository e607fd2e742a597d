"""Rows that are equal."""
