"""Baselines: moments, Fréchet distance, kernel distance, manifold overlap."""
