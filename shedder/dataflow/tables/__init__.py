"""Tables in standing queries: versions of rows, and joins of stream tuples with versions.

A *place* is a number that counts the changes of a query's tables in the order of the log. A tuple
of a stream has the place of the last change before it, and joins the rows that are valid there.
So later changes of a table neither add pairs nor take them back (NRR tables: Golab 2006, sec. 3.3).
The places of a RETROACTIVE table are instants, and its changes correct earlier rows (R tables).

May import: batch_rows, changes, step_parts, row_store, projection, selection, key_directory, joins.
"""
