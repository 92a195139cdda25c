"""The Spark runtime: Java, the session, the daemon of Python workers, remote files.

Imports no other module of `spark_ingest`.
"""
