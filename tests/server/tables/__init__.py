"""Tests of tables over gRPC."""
