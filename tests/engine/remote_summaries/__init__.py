"""Tests of `shedder.engine.remote_summaries`."""
