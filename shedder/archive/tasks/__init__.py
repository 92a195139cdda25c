"""Deadlines, progress and cancellation of long work.

The working thread writes a progress object, and any other thread may read it. A deadline is a
time limit on an answer together with its progress.

Imports no other package of `shedder.archive`.
"""
