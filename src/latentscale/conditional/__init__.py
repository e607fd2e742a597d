"""Conditional diversity: what the items that outputs were made from leave open."""
