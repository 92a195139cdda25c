"""Panes."""
