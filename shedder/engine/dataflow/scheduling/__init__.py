"""Scheduling of the operators of standing row queries on the apply thread."""
