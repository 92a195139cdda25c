"""Layouts of runs on disk, so that a part of a run can be read as a random sample.

The layouts are plain, eager, lazy and hybrid, after OSCAR (Chandrasekaran and Franklin, VLDB
2004). `protocol` says what each of them does; `readable_part` chooses what is read for a given
reduction.

May import: tasks, files, metadata, encoding.
"""
