"""Expiry of rows in time windows: by update patterns, by negative tuples, or direct.

May import: update_patterns, changes, window_lifetimes, key_directory, pending_events.
"""
