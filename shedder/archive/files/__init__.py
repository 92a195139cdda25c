"""The file system seam, the data directory with its lock, and background writing.

`Files` is a protocol over the system calls that the archive makes; tests pass in faults through
it.

May import: tasks.
"""
