"""Mergeable summaries in bounded memory: arrays in, estimates with intervals out."""
