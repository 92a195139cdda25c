"""Tests of `shedder.engine.one_time_queries`."""
