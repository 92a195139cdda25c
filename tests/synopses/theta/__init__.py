"""Theta."""
