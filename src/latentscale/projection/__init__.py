"""A drawing of rows in the plane."""
