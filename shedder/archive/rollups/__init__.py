"""Partial aggregates per run, window and group for the rollups of a stream.

Partial aggregates are derived from runs and can be rebuilt at any time.

May import: tasks, metadata, catalog, encoding, layouts, runs, store.
"""
