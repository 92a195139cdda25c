"""Tests of `synopses.counters`."""
