"""Backup and restore, scrubbing, and verification of a data directory.

Backup and scrub work while the directory is served. `verify` needs a directory that no process
has open.

May import: tasks, files, metadata, log, catalog, runs, indexes, archive_store.
"""
