"""Loads of files into streams and tables: all rows are checked before the first one is stored.

`stream_load` and `table_load` load files. `load_identity` names a file by its content, and
`load_history` finds what earlier loads stored of it. `load_sources` chooses what is left to store,
`loads` pushes it, and `load_progress` shows how far it is. `schema_inference` makes a missing
stream from a file. `push_options` has the options of `shedder push`.

May import: files, stderr, connection.
"""
