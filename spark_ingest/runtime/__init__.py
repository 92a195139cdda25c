"""The Spark runtime: Java, the session, the daemon of Python workers, remote files.

May import: shedder.errors, shedder.streams. Imports no other module of `spark_ingest`.
"""
