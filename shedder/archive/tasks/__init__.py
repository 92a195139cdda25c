"""Deadlines, progress and cancellation of long work.

A progress object is written by the thread that works and read by any other. A deadline is a
time limit on an answer together with its progress.

Imports no other package of `shedder.archive`.
"""
