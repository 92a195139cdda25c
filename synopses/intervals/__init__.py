"""Intervals: pure functions from what a sample saw to bounds that hold, over arrays of groups."""
