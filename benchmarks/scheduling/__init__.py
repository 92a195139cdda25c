"""Policies of operator scheduling under a burst."""
