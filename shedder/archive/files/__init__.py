"""The file system interface, the data directory with its lock, and background writing.

`Files` is a protocol over the system calls that the archive makes. Tests inject faults with
implementations of `Files`.

May import: tasks.
"""
