"""Tests of `shedder.engine.ingest`."""
