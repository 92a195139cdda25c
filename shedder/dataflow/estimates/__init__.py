"""Estimated memory of the operators of a graph that has read nothing.

May import: changes, graph, multiplicity_kernels, projection, selection, window_lifetimes,
key_directory, union, multiplicities, expiry, rows_window, item_lists, sums, relation_to_stream,
whole_relation, joins, tables, join_order, negations.
"""
