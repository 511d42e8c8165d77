"""The ops on fragments, and the tensor cores of Hopper, as Python source."""

from __future__ import annotations

from tilepipe.ir import ops
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.hardware.operand_tiles import takes_stmatrix
from tilepipe.machine.memory import fragment_access
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.registers import write_registers
from tilepipe.machine.units import wgmma
from tilepipe.sim.codegen.definition import defines, plain
from tilepipe.sim.codegen.functions import Function

plain(ops.WgmmaFence, wgmma.wgmma_fence)
plain(ops.WgmmaCommit, wgmma.wgmma_commit)


@defines(ops.FragmentDefine, Frag)
def _(f: Function, op: ops.FragmentDefine) -> None:
    made = f.module.constant(op.fragment, f"ir_{op.fragment.name}")
    f.emit(f"{f.fragment(op.fragment)} = Frag({made})", op)


@defines(ops.FragmentSet, write_registers)
def _(f: Function, op: ops.FragmentSet) -> None:
    shape = op.value.shape
    width = shape[1] if shape and shape[1] > 1 else op.fragment.cols - op.col
    _set(f, op, op.fragment, f.x(op.value)[0], op.col, width)


@defines(ops.FragmentReduce)
def _(f: Function, op: ops.FragmentReduce) -> None:
    # fmaxf: a NaN gives way to a number
    reduce = "np.add" if op.op == "add" else "np.fmax"
    _set(f, op, op.dst, f"{reduce}.reduce({f.x(op.value)[0]}, axis=1, keepdims=True)", 0, 1)


def _set(f: Function, op: ops.Op, fragment: Fragment, text: str, col: int, width: int) -> None:
    """Gives columns of a fragment their values: of the warp at hand, or of all."""
    warp = "" if f.x.warp is None else f", {f.x.warp}"
    where = f"{f.fragment(fragment)}, ag, {f.x.site}"
    f.emit(f"write_registers({where}, {text}, {col}, {width}{warp})", op)


@defines(ops.FragmentAny)
def _(f: Function, op: ops.FragmentAny) -> None:
    f.emit(f"{f.x.bind(op.result, False)} = bool(np.any({f.x(op.value)[0]}))", op)


@defines(ops.FragmentStore, fragment_access.fragment_store)
def _(f: Function, op: ops.FragmentStore) -> None:
    remote = f.remote(op.dst.cta, op)
    aligned = takes_stmatrix(op.dst, op.value.shape)
    where = f.place(op.dst, op)
    f.request(op, fragment_access.fragment_store, *where, aligned, f.x(op.value)[0], *remote)


@defines(ops.FragmentLoad, fragment_access.fragment_load)
def _(f: Function, op: ops.FragmentLoad) -> None:
    remote, into = f.remote(op.src.cta, op), f.fragment(op.dst)
    where = f.place(op.src, op)
    f.request(op, fragment_access.fragment_load, into, *where, f.x.warp, *remote)


@defines(ops.FragmentLoadGlobal, fragment_access.fragment_load_global)
def _(f: Function, op: ops.FragmentLoadGlobal) -> None:
    into, coords = f.fragment(op.dst), f.coords(op.coords, op)
    f.request(op, fragment_access.fragment_load_global, into, coords)


@defines(ops.FragmentStoreGlobal, fragment_access.fragment_store_global)
def _(f: Function, op: ops.FragmentStoreGlobal) -> None:
    coords = f.coords(op.coords, op)
    f.request(op, fragment_access.fragment_store_global, coords, f.x(op.value)[0])


@defines(ops.Wgmma, wgmma.wgmma)
def _(f: Function, op: ops.Wgmma) -> None:
    a = [f.fragment(op.a), "None"] if isinstance(op.a, Fragment) else f.place(op.a, op)
    adds = f.x.uniform(op.accumulate, "whether a wgmma accumulates", op)
    f.request(op, wgmma.wgmma, f.fragment(op.acc), *a, *f.place(op.b, op), adds)


@defines(ops.WgmmaWait, wgmma.wgmma_wait)
def _(f: Function, op: ops.WgmmaWait) -> None:
    f.request(op, wgmma.wgmma_wait, op.pending)
