"""Backup and restore, scrubbing, verification and repair of a data directory.

Backup and scrub work while the directory is served. `verify` and `repair` need a directory that no
process has open.

May import: tasks, files, metadata, log, catalog, tables, runs, indexes, archive_store.
"""
