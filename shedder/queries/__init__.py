"""Queries: evidence to answers, precision targets, and the choice of a source.

Evidence is the estimates of a query's aggregates. The packages build answers from evidence,
estimate from samples, choose the source of one-time queries, and test how often intervals hold
the truth.

May import: synopses, errors, cql, streams.
"""
