"""Expiry of rows in time windows: by update patterns, by negative tuples, or direct.

May import: update_patterns, changes, pending_events, window_lifetimes, key_directory.
"""
