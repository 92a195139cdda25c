"""Allocation."""
