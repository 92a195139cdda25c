"""Benchmark of the most frequent values of windows of rows."""
