"""The catalog: what a data directory contains, in SQLite, with a checksum for every row.

All changes are transactions. Migrations bring catalogs of older versions up to date in a single
one.

May import: tasks, files, metadata.
"""
