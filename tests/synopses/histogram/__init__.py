"""Tests of `synopses.histogram`."""
