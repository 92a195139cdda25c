"""Frequent."""
