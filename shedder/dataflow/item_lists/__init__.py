"""Most frequent values of ROWS windows, in bounded bytes.

May import: changes, key_directory.
"""
