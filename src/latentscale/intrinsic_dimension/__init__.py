"""The number of coordinates that describe the rows near each other."""
