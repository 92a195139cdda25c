"""Tests of the most frequent values of ROWS windows."""
