"""Tests of `synopses.model`."""
