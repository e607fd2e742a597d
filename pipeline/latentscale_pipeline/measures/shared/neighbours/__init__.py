"""Stages that find the neighbours of every row of a corpus."""
