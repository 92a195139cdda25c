"""Sizes of joins from exact counts of heavy keys, samples of the other keys, and bucket sums.

May import: model, kernels, intervals.
"""
