"""Kubernetes for tests: an API server, and a node that runs pods as processes of this machine."""
