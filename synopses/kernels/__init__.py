"""Array kernels common to all synopses: hashing, group tables, sorting, growable arrays.

Kernels are compiled by numba without the interpreter's lock.

May import: model.
"""
