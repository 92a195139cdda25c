"""Totals over keys of which a sample by hash is known: distribution-free intervals.

May import: interval, model.
"""
