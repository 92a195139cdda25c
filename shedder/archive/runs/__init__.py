"""Runs: writing a closed range of positions, verifying a run, and the cache of run files.

A run that was written elsewhere is read in full before it is adopted.

May import: tasks, files, metadata, encoding, layouts.
"""
