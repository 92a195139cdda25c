"""Changes to written runs: relayout, deletion, purge, retention and quarantine.

Every change is one catalog transaction, and readers continue with their snapshots.

May import: tasks, metadata, catalog, encoding, layouts, runs, store.
"""
