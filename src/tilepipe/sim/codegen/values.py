"""The ops on names, variables and cursors, as Python source."""

from __future__ import annotations

from tilepipe.ir import expressions as e, ops
from tilepipe.ir.memory import Cursor
from tilepipe.sim import runtime
from tilepipe.sim.codegen.definition import defines
from tilepipe.sim.codegen.functions import Function


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
