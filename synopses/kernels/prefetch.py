"""Memory that a kernel will want soon: fetched before it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray


@intrinsic
def _prefetch_row(typing_context, table, row):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(array.strides, 0)
        bytes_type, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        start = builder.bitcast(array.data, bytes_type)
        at = builder.gep(start, [builder.mul(arguments[1], stride)])
        kind = ir.FunctionType(ir.VoidType(), [bytes_type, word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [bytes_type], kind)
        builder.call(fetch, [at, word(1), word(3), word(1)])  # To write, to keep, data.
        return context.get_dummy_value()

    return types.none(table, types.int64), codegen


# Bring table[row] near before it is needed: a loop whose branches wait for memory cannot look
# ahead by itself. Any row will do, also one that is not there; only inside kernels.
prefetch: Callable[[NDArray[Any], int], None] = cast(Any, _prefetch_row)
