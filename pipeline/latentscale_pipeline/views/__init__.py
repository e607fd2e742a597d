"""Formatting, tables and figures for terminals and reports."""
