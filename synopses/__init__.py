"""Synopses: mergeable summaries in bounded memory, arrays in, estimates with intervals out.

The folders hold moments, distinct counts, quantiles, histograms, frequent items, counters, samples
and interval estimators. `precompile` compiles every kernel before the first tuple.

Imports no other top package.
"""
