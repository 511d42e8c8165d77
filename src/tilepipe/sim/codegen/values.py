"""The ops on names, variables, cursors and fragments, and the ops that report values, as Python
source.
"""

from __future__ import annotations

from tilepipe.ir import expressions as e, ops
from tilepipe.ir.fragment import Fragment, row_threads
from tilepipe.ir.memory import Cursor
from tilepipe.machine.memory.fragment_access import write_registers
from tilepipe.machine.memory.fragments import Frag
from tilepipe.sim import runtime
from tilepipe.sim.bits import in_fours
from tilepipe.sim.codegen.functions import Function, defines
from tilepipe.sim.reductions import found_in_rows, reduced, reduced_columns, reduced_rows
from tilepipe.sim.scans import scanned_rows


@defines(ops.Let)
def _(f: Function, op: ops.Let) -> None:
    text, array = f.x(op.expr)
    if isinstance(op.expr, e.FragmentRead):
        text += ".copy()"
    name = f.x.bind(op.local, array)
    f.emit(f"{name} = {text}", op)


@defines(ops.Define)
def _(f: Function, op: ops.Define) -> None:
    text, array = f.x(op.init)
    if f.x.varies(op.var.vary) and not array:
        text, array = f"np.full({32 if f.x.warp is not None else f.threads}, {text})", True
    name = f.x.define(op.var, array)
    f.emit(f"{name} = {text}", op)


@defines(ops.Assign, runtime.place)
def _(f: Function, op: ops.Assign) -> None:
    text, array = f.x(op.value)
    if array and not f.x.is_array(op.var):
        text = f.x.uniform(op.value, f"the value given to '{op.var.name}'", op)
    name = f.x.names(op.var, op.var.name)
    if f.x.is_array(op.var):
        text = f"place({name}, {text}, {f.mask_text}, {f.x.base})"
    f.emit(f"{name} = {text}", op)


@defines(ops.Read)
def _(f: Function, op: ops.Read) -> None:
    text, array = f.x.read(op.var)
    f.emit(f"{f.x.bind(op.local, array)} = {text}", op)


@defines(ops.CursorDefine)
def _(f: Function, op: ops.CursorDefine) -> None:
    stage, phase = _cursor(f, op.cursor)
    f.emit(f"{stage} = 0; {phase} = {op.cursor.start_phase}", op)


@defines(ops.CursorRead)
def _(f: Function, op: ops.CursorRead) -> None:
    stage, phase = _cursor(f, op.cursor)
    f.emit(f"{f.x.bind_stage(op.stage, op.cursor)} = {stage}", op)
    f.emit(f"{f.x.bind(op.phase, False)} = {phase}", op)


@defines(ops.CursorStep)
def _(f: Function, op: ops.CursorStep) -> None:
    (stage, phase), stages = _cursor(f, op.cursor), op.cursor.stages
    if isinstance(op.n, e.Const) and op.n.value == 1:
        f.emit(f"{stage} += 1", op)
        f.emit(f"if {stage} == {stages}: {stage} = 0; {phase} += 1", op)
        return
    f.emit(f"{stage} += {f.x.scalar(op.n, 'the step of a cursor', op)}", op)
    f.emit(f"{phase} += {stage} // {stages}; {stage} %= {stages}", op)


def _cursor(f: Function, cursor: Cursor) -> tuple[str, str]:
    name = f.names(cursor, cursor.name)
    return f"{name}_stage", f"{name}_phase"


# -- fragments and reports -------------------------------------------------------------


@defines(ops.FragmentDefine, Frag)
def _(f: Function, op: ops.FragmentDefine) -> None:
    made = f.module.constant(op.fragment, f"ir_{op.fragment.name}")
    f.emit(f"{f.fragment(op.fragment)} = Frag({made})", op)


@defines(ops.FragmentSet, write_registers)
def _(f: Function, op: ops.FragmentSet) -> None:
    shape = op.value.shape
    width = shape[1] if shape and shape[1] > 1 else op.fragment.cols - op.col
    _set(f, op, op.fragment, f.x(op.value)[0], op.col, width)


@defines(ops.FragmentPack, in_fours)
def _(f: Function, op: ops.FragmentPack) -> None:
    text = f"in_fours({f.x(op.value)[0]})"
    _set(f, op, op.fragment, text, op.col, op.value.shape[1])


@defines(ops.FragmentReduce, reduced_rows)
def _(f: Function, op: ops.FragmentReduce) -> None:
    text = f"reduced_rows({f.x(op.value)[0]}, {op.op!r}, {row_threads(op.dst.layout)})"
    _set(f, op, op.dst, text, 0, 1)


@defines(ops.FragmentReduceColumns, reduced_columns)
def _(f: Function, op: ops.FragmentReduceColumns) -> None:
    how = f"{op.op!r}, {op.layout!r}, {f.threads}"
    text = f"reduced_columns({f.x(op.value)[0]}, {how})"
    _set(f, op, op.dst, text, 0, op.dst.cols)


@defines(ops.FragmentReduceAll, reduced)
def _(f: Function, op: ops.FragmentReduceAll) -> None:
    dtype = f.module.constant(op.result.dtype, op.result.dtype.name)
    how = f"{op.op!r}, {op.layout!r}, {f.threads}, {dtype}"
    text = f"reduced({f.x(op.value)[0]}, {how})"
    if op.op == "add" and op.result.dtype.kind == "int":  # as any sum of signed integers
        text = f"fits({f.x.site}, {text}, {op.result.dtype.bits})"
    f.emit(f"{f.x.bind(op.result, False)} = {text}", op)


@defines(ops.FragmentFind, found_in_rows)
def _(f: Function, op: ops.FragmentFind) -> None:
    best, places = f.names.fresh("best"), f.names.fresh("places")
    f.emit(f"{best}, {places} = found_in_rows({f.x(op.value)[0]}, {op.op!r})", op)
    _set(f, op, op.dst, best, 0, 1)
    _set(f, op, op.columns, places, 0, 1)


@defines(ops.FragmentScan, scanned_rows)
def _(f: Function, op: ops.FragmentScan) -> None:
    text = f"scanned_rows({f.x(op.value)[0]}, {row_threads(op.dst.layout)})"
    _set(f, op, op.dst, text, 0, op.dst.cols)


def _set(f: Function, op: ops.Op, fragment: Fragment, text: str, col: int, width: int) -> None:
    """Gives columns of a fragment their values: of the warp at hand, or of all."""
    warp = "" if f.x.warp is None else f", {f.x.warp}"
    where = f"{f.fragment(fragment)}, ag, {f.x.site}"
    f.emit(f"write_registers({where}, {text}, {col}, {width}{warp})", op)


@defines(ops.FragmentAny)
def _(f: Function, op: ops.FragmentAny) -> None:
    f.emit(f"{f.x.bind(op.result, False)} = bool(np.any({f.x(op.value)[0]}))", op)


@defines(ops.Print, runtime.show)
def _(f: Function, op: ops.Print) -> None:
    values = "".join(f"{f.x(a)[0]}, " for a in op.args)
    f.emit(f"show(m, ag, {f.x.site}, {f.mask_text}, {op.format!r}, ({values}))", op)


@defines(ops.Assert, runtime.check)
def _(f: Function, op: ops.Assert) -> None:
    f.emit(f"check(ag, {f.x.site}, {f.mask_text}, {f.x(op.cond)[0]}, {op.message!r})", op)
