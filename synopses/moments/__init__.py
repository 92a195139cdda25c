"""Exact counts, sums, extremes, variances, covariances, first and last values per group.

All of them take constant memory per group, and all can be merged.

May import: model, kernels.
"""
