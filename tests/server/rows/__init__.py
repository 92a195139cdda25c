"""Tests of rows that a server sends: parts, limits, and clients that leave."""
