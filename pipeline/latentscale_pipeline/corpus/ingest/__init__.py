"""Ingest: read sources, write shards, publish the manifest."""
