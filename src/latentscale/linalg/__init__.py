"""Krylov methods, preconditioners, control variates, eigenvalues and bounds."""
