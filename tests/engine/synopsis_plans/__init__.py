"""Tests of `shedder.engine.synopsis_plans`."""
