"""Ingest: read sources, write shards and the manifest."""
