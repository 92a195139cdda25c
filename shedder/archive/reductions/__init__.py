"""Reductions (r-UDFs): functions that decide how much of the archive a scan may skip.

A reduction receives the statistics of a run's blocks and returns the share to skip, from 0 to
1. Installed packages may add reductions by entry point.

May import: tasks, metadata.
"""
