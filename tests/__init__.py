"""The tests: they mirror the two packages; `acceptance` holds what takes real systems or long."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The project's folder."""

DATA = ROOT / "tests" / "data"
"""Stored references and records."""
