"""Tests of `shedder.engine.audit`."""
