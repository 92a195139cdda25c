"""State of the archive per stream: runs, tail, snapshots and scans.

A snapshot is a stream at one moment: its runs, its deleted rows and its tail. A scan reads a
snapshot in order of position.

May import: tasks, metadata, catalog, layouts, runs.
"""
