"""Whole engine."""
