"""Frequent items: the most frequent values per group, with certain bounds on their counts.

The algorithm is Misra-Gries as in Apache DataSketches. Kernels work on one arena of
open-addressing tables.

May import: model, kernels.
"""
