"""Confidence intervals: pure functions from samples to bounds, over arrays of groups.

Each function cites its theorem and states when its bound holds. Where normality cannot be
certified, distribution-free bounds (betting) replace normal intervals.

May import: model, kernels.
"""
