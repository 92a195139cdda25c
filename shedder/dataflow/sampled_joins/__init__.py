"""Aggregates over an equi-join in bounded bytes: heavy keys exactly, a sample of the others.

Above sums, which has the same aggregates exactly.

May import: batch_rows, update_patterns, changes, key_directory.
"""
