"""Tests of `shedder.engine.tenants`."""
