"""Hubs: rows that are among the nearest neighbours of very many others."""
