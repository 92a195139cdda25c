"""Tables: rows in memory under a primary key, and their images in files.

Changes of a table are records of the log. A checkpoint writes an image of each changed table, a
Parquet file with all rows, so that the log before the checkpoint is not needed.

May import: tasks, files, metadata, log.
"""
