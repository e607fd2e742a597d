"""Magnitude: function, convergence scale, area, and approximations for many points."""
