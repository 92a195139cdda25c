"""Tests of `synopses.quantiles`."""
