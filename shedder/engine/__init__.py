"""The engine: ingest, recovery, standing queries, one-time questions."""
