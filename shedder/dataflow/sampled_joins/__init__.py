"""Aggregates over an equi-join in bounded bytes: heavy keys exactly, a sample of the others.

Above sums, which has the same aggregates exactly, and joins, which has the conditions of a join.

May import: batch_rows, update_patterns, changes, key_directory, joins, tables.
"""
