"""Naive references for the measures, written from the papers.

Nothing here imports the package under test, and nothing is clever: dense algebra, double loops and
closed forms on small inputs.
"""

# --- distances ------------------------------------------------------------------------------

# --- heat trace and IMD ---------------------------------------------------------------------

# --- magnitude ------------------------------------------------------------------------------

# --- Vendi ----------------------------------------------------------------------------------

# --- GeomCA ---------------------------------------------------------------------------------
