"""Heat trace and IMD."""
