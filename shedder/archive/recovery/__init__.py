"""Opening a directory: evidence that catalog and log are whole, and files of unknown origin.

May import: files, metadata, log, catalog.
"""
