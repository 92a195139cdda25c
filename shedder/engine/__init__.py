"""The engine: ingest, recovery, standing queries and one-time queries in one process.

`engine.Engine` is the entry point, for a program that embeds it and for the server.
`engine_state` has the live state and the thread that applies durable records.

May import: synopses, allocator, errors, cpu_priority, settings, cql, streams, queries, archive,
overload.
"""
