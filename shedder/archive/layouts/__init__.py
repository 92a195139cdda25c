"""Layouts of runs on disk, so that a part of a run can be read as a random sample.

The layouts are plain, eager, lazy and hybrid, after OSCAR (Chandrasekaran and Franklin, VLDB
2004). `protocol` says what each layout does; `readable_part` chooses what a scan reads for a given
reduction.

May import: tasks, files, metadata, encoding.
"""
