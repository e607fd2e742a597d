"""Maps: rows placed in the plane so that near rows stay near."""
