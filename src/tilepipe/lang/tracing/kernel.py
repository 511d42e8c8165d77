"""Tracing a kernel function: its arguments become parameters, its statements a `Kernel`."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tilepipe.errors import BindError, TraceError
from tilepipe.ir import dtypes, memory, ops
from tilepipe.ir.chip import Chip
from tilepipe.ir.expressions import Param
from tilepipe.ir.location import Loc
from tilepipe.ir.placement import place
from tilepipe.ir.program import Kernel, all_ops
from tilepipe.lang.arguments.tensor_map import TensorMap
from tilepipe.lang.context.context import Context
from tilepipe.lang.handles.arrivals import Ledger
from tilepipe.lang.memory.global_tensors import GlobalTensor
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import traced_value


def trace(
    function: Callable[..., object],
    args: Mapping[str, TensorMap | int | float | None],
    static: Mapping[str, object],
    cluster: tuple[int, int, int],
    chip: Chip,
    cooperative: bool = False,
    ctas_per_sm: int = 1,
) -> Kernel:
    """Runs `function(ctx, *args, **static)` once and returns the kernel that it describes.

    Raises:
        TraceError: or a subclass: the function cannot be traced.
        LimitError: the chip has less than the kernel needs.
    """
    code = function.__code__
    kernel = Kernel(
        function.__name__,
        Loc(code.co_filename, code.co_firstlineno, code.co_name),
        cluster=cluster,
        cooperative=cooperative,
        ctas_per_sm=ctas_per_sm,
    )
    tracer = Tracer(kernel, Ledger())
    tracer.entry = sys._getframe()
    with tracer.running():
        ctx = Context(tracer)
        operands = [_operand(tracer, name, arg) for name, arg in args.items()]
        with tracer.open("set-up", kernel.setup):
            result = _call(function, ctx, operands, static)
            if kernel.barriers or kernel.cluster_size > 1:
                tracer.emit(ops.SetupBarrier(kernel.loc))
        tracer.raise_deferred()
        if result is not None:
            raise TraceError(
                f"kernel '{kernel.name}' returns {result!r}; a kernel returns nothing", kernel.loc
            )
        if not kernel.roles:
            raise TraceError(
                f"kernel '{kernel.name}' has no role, so it would do nothing. Put its code under"
                " @ctx.role(...).",
                kernel.loc,
            )
        tracer.ledger.settle(
            {
                op.bar.array
                for op in all_ops(kernel)
                if isinstance(op, ops.MbarWait | ops.MbarTryWait)
            }
        )
    place(kernel, chip)
    return kernel


@contextmanager
def explain_none(what: str, given: Mapping[str, object]) -> Iterator[None]:
    """Reports an error that an argument of None causes as an error of that argument.

    Raises:
        BindError: in place of an AttributeError or a TypeError about None, where an argument is
            None.
    """
    try:
        yield
    except (AttributeError, TypeError) as error:
        absent = [name for name, arg in given.items() if arg is None]
        if not absent or "None" not in str(error):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        names = ", ".join(f"'{name}'" for name in absent)
        raise BindError(
            f"argument{'s' if len(absent) > 1 else ''} {names} {'are' if len(absent) > 1 else 'is'}"
            f" None, which {what} uses: {error}",
            Loc(last.filename, last.lineno or 0, last.name),
        ) from None


def _call(
    function: Callable[..., object],
    ctx: Context,
    operands: list[object],
    static: Mapping[str, object],
) -> object:
    given = dict(zip(list(inspect.signature(function).parameters)[1:], operands, strict=False))
    try:
        with explain_none(f"kernel '{function.__name__}'", given):
            return function(ctx, *operands, **static)
    except UnboundLocalError as error:
        error.add_note(
            "An in-place update (`x += ...`) of a name from an enclosing function makes the name"
            " local: write `x.set(...)`, or `nonlocal x` first."
        )
        raise


def _operand(tracer: Tracer, name: str, arg: TensorMap | int | float | None) -> object:
    if arg is None:
        return None
    if isinstance(arg, TensorMap):
        tensor = memory.TensorParam(
            name, arg.dtype, arg.rank, arg.order, arg.box, arg.swizzle, arg.ragged
        )
        tracer.kernel.params.append(tensor)
        return GlobalTensor(tracer, tensor)
    dtype = dtypes.float32 if isinstance(arg, float) else dtypes.int32
    tracer.kernel.params.append(memory.ScalarParam(name, dtype))
    return traced_value(tracer, Param(dtype, name=name))
