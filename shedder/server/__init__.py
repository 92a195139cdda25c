"""The server: an engine over gRPC, with authentication, limits, health and metrics.

The interceptor checks the identity and the scope of every call. `ingest`, `query`, `control`,
`audit`, `backfill` and `synopses` each hold one service.

May import: v1, errors, cpu_priority, settings, cql, streams, queries, archive, overload,
engine, wire.
"""
