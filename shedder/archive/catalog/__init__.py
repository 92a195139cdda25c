"""The catalog: what a data directory contains, in SQLite, with a checksum for every row.

All changes are transactions. A migration brings the catalog of an older version up to date in one
transaction.

May import: tasks, files, metadata.
"""
