"""Streams: batches, frames, event time, windows and panes."""
