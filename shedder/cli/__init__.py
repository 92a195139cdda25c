"""The command line: data on stdout, messages on stderr, one exit code per kind of failure.

`commands` lists the commands of `shedder` and those that other packages add by entry point. The
modules `sql`, `push`, `serve`, `check`, `scrub`, `backup`, `tokens` and `simulate` hold them.
`connection` opens a directory or a server through the functions of `shedder`. `loading`
loads files into streams and tables, and `files` reads their rows.

May import: errors, settings, cql, streams, queries, archive, engine, server, simulation.
"""
