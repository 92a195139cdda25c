"""Spark integration: ingest through Spark, exact answers from Spark, and accuracy reports.

`pipeline` builds summaries on executors or forwards tuples, each exactly once. `backfill` adds a
stream's past, `judgement` compares answers of the service with exact ones, and `demo` is a
tour with real flights. `cli` adds the commands of Spark to `shedder`.

May import: synopses, shedder.errors, shedder.svg, shedder.cql, shedder.streams, shedder.queries,
shedder.archive, shedder.engine, shedder.client, shedder.cli.
"""
