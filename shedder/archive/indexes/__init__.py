"""Value indexes: for one column of one run, which row groups contain which values.

An index is derived from its run. A damaged or missing index costs time and never correctness.

May import: tasks, files, metadata, layouts, runs, store.
"""
