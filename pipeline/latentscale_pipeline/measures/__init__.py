"""The measures: one folder each, what they share, and the registry of all."""
