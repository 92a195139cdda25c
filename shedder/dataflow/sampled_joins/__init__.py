"""Aggregates over an equi-join in bounded bytes: heavy keys exactly, a sample of the others.

Above sums, which has the same aggregates exactly. May import: changes, key_directory.
"""
