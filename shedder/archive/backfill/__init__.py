"""Runs of a stream's past that were written elsewhere, staged and adopted together.

Staged runs are invisible to readers. Committing the backfill makes all of them visible in one
transaction.

May import: files, metadata, catalog, runs, store.
"""
