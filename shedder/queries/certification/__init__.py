"""Certification: a sequential test of how often a query's intervals hold the truth.

The audit compares an answer with the exact one value by value. A certification is lost when a
certain bound fails or when misses are too frequent.

May import: answers.
"""
