"""Streams, queries, servers, client processes and rivals that several benchmarks share."""
