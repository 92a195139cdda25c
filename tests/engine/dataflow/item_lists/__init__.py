"""Tests of standing TOP over ROWS windows."""
