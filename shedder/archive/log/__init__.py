"""The log: an append-only, checksummed sequence of records in segments, with group commit.

One disk thread appends records and makes each group durable with one fsync. Opening a log
verifies its segments, cuts a torn tail and reports damage. The format is in
docs/archive_format.md.

May import: files.
"""
