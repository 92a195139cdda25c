"""Runs: writing a closed range of positions, verifying a run, and the cache of run files.

The layout decides the order of rows; `encoding/run_writer.py` writes the Parquet file.

A run that was written elsewhere is read in full before it is adopted.

May import: tasks, files, metadata, encoding, layouts.
"""
