"""Scheduling of operators: which queue is read next, so that little waits in all of them.

Source: Babcock, Babu, Datar, Motwani 2003, Chain: operator scheduling for memory minimization in
data stream systems; Motwani et al. 2003, Query processing, resource management, and approximation
in a data stream management system, section 4.2.

Imports no other package of `shedder.dataflow`.
"""
