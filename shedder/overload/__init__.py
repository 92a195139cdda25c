"""Overload control: measured load to CPU budget, thinning levels and admission rates.

`controller.step` is a pure function from state and load to the next state. `load_meter` and
`process_usage` measure; the other modules price, rank and limit the work.

May import: allocator, errors, settings.
"""
