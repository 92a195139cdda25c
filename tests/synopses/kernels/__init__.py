"""Tests of `synopses.kernels`."""
