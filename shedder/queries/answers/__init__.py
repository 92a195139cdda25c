"""Answers: Arrow tables whose approximate columns carry intervals, and their renderings.

`database_api` defines the operations that the embedded engine and the client have in common, with
receipts and the ledger.

Imports no other package of `shedder.queries`.
"""
