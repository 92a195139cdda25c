"""The archive: log, runs and catalog on disk, and exact queries over them.

`archive_store` opens a data directory and keeps its log, catalog, runs and tails. The other
packages write, rewrite, index, sample, verify and back up runs.

May import: synopses, errors, cql, streams.
"""
