"""Where bytes are kept: URLs, objects, artifacts, locks, events."""
