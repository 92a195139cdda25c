"""Grouped aggregates with retraction: exact sums and moments, and trees of values.

May import: batch_rows, fixed_column, changes, pending_events, key_directory, stores.
"""
