"""Storage: URLs, objects, artifacts, locks, cancellation, events."""
