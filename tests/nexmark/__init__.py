"""Queries of NEXMark in the engine against DuckDB."""
