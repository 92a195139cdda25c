"""Simple random samples of runs, read block by block.

The sample of all runs together is a simple random sample without replacement, whatever the
sizes of runs and blocks. A sample can be extended to a larger share, and keeps the tuples
that were read before.

May import: tasks, metadata, layouts.
"""
