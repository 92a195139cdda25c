"""The allocator: shares of memory and CPU for synopses, as pure functions over arrays.

`allocate` meets precision targets first, and then lowers the weighted error as far as the budget
allows. `plan_precision` models the precision of operator plans.

Imports no other top package.
"""
