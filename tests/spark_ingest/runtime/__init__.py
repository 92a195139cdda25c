"""Tests of `spark_ingest.runtime`."""
