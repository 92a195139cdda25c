"""Grouped counts and sums with retraction; sums of doubles are exact.

May import: fixed_column, changes, pending_events, key_directory.
"""
