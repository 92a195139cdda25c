"""Theta sketches: distinct counts per group, set operations and Jaccard similarity.

The bytes are those of Apache DataSketches. A theta sketch may be thinned by the hash of the
value; HyperLogLog may not be thinned.

May import: model, kernels, intervals.
"""
