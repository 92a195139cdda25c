"""Tests of `synopses.hll`."""
