"""Stores of rows that several operators read: the tuples of a stream, with an index for each key.

May import: fixed_column, changes, row_store, window_lifetimes, key_directory.
"""
