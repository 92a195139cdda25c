"""Rebuild."""
