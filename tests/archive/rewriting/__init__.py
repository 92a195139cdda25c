"""Rewriting."""
