"""Parquet files of runs: the encoding of columns, and a durable writer with checksums.

May import: tasks, files, metadata.
"""
