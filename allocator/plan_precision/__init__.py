"""Precision of query plans: false positives and negatives from operators to the result.

No service code uses this package yet. The package chooses memory for the operators of a plan so
that the result is as precise as a budget allows.

May import of `allocator`: demands, errors, prices, rounding.
"""
