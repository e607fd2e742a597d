"""Stages and iterations that several measures use."""
