"""Arrays inside kernels without reference counts.

When a kernel calls another one, it counts its arrays' references up and down again, atomically.
That is two locked instructions per array and call, some 10 ns each; the callee may take less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from llvmlite import ir
from numba.extending import intrinsic

_Array = TypeVar("_Array")


@intrinsic
def _borrowed(typing_context, array):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        made = context.make_array(signature.return_type)(context, builder, arguments[0])
        made.meminfo = ir.Constant(made.meminfo.type, None)
        made.parent = ir.Constant(made.parent.type, None)
        return made._getvalue()

    return array(array), codegen


# The same array, to be handed on to other kernels; only inside a kernel, whose caller keeps it.
borrowed: Callable[[_Array], _Array] = cast("Callable[[_Array], _Array]", _borrowed)
