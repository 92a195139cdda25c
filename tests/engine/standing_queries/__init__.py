"""Tests of `shedder.engine.standing_queries`."""
