"""Clocks, threads, executors, timers, long tasks and subscribers of an engine.

`environment` is the interface between the engine and the machine: the simulation passes in a
virtual clock, files and threads. No module here depends on streams or queries.

May import: synopsis_plans.
"""
