"""Files of rows as record batches: CSV, TSV, NDJSON, JSON arrays and Parquet.

`contents` unpacks and decodes bytes, `csv_rows`, `json_rows` and `parquet_rows` read rows, and
`column_types` infers a type for each column. `cell_values` converts values without loss.
`timestamps` and `epoch_times` read event times; `rows_without_time` leaves out rows without one.
`row_file` joins these for one file. `event_order` sorts the rows of several files by event time.
`input_paths` has the files of a command, with stdin as a copy on disk.

Imports no other package of `shedder.cli`.
"""
