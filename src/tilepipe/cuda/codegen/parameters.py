"""The arguments of the printed kernel in order, which a launch passes for the parameters of the
program.

A tensor that TMA accesses is passed as a tensor map. One that ordinary loads and stores access is
passed as a pointer and a stride for every dimension that is not contiguous. Extents are passed
where the kernel reads them. Nothing is passed that the kernel does not use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilepipe.cuda.codegen.names import memory_type, register_type
from tilepipe.ir.def_use import elements, leaves, tensors
from tilepipe.ir.expressions import Param
from tilepipe.ir.facts import Proxy
from tilepipe.ir.memory import ScalarParam, TensorParam
from tilepipe.ir.program import Kernel, all_ops


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the printed `__global__` function.

    Attributes:
        kind: "map" (a 128-byte tensor map by value), "data" (a pointer), "stride" (int64,
            elements), "shape" (int32) or "scalar".
        param: the parameter of the program that it belongs to.
        axis: the dimension, for "stride" and "shape", outermost first.
    """

    kind: str
    param: TensorParam | ScalarParam
    axis: int = -1

    @property
    def name(self) -> str:
        """The identifier that it gets unless that is taken."""
        suffix = {"data": "_data", "stride": f"_stride_{self.axis}", "shape": f"_shape_{self.axis}"}
        return self.param.name + suffix.get(self.kind, "")

    def declare(self, name: str, kernel: bool = False) -> str:
        """Its declaration in the signature of the kernel, or of a device function."""
        match self.kind:
            case "map":
                return (
                    f"const __grid_constant__ TensorMap {name}"
                    if kernel
                    else f"const TensorMap& {name}"
                )
            case "data":
                return f"{memory_type(self.param.dtype)}* {name}"
            case "stride":
                return f"i64 {name}"
            case "shape":
                return f"i32 {name}"
        return f"{register_type(self.param.dtype)} {name}"


def arguments(kernel: Kernel) -> list[Argument]:
    """The arguments of the printed kernel: for each parameter its map, data, strides and extents,
    as far as the kernel uses them.
    """
    used = set(_uses(kernel))
    result: list[Argument] = []
    for p in kernel.params:
        if isinstance(p, ScalarParam):
            wanted = [Argument("scalar", p)]
        else:
            axes = range(p.rank)
            wanted = [Argument("map", p), Argument("data", p)]
            wanted += [Argument("stride", p, i) for i in axes if i != p.contiguous_axis]
            wanted += [Argument("shape", p, i) for i in axes]
        result += [a for a in wanted if (a.kind, a.param.name, a.axis) in used]
    return result


def _uses(kernel: Kernel) -> Iterator[tuple[str, str, int]]:
    for op in all_ops(kernel):
        clipped = not any(elements(op))  # an access to one element is not clipped
        for tensor, use in tensors(op):
            if use.proxy is Proxy.ASYNC:
                yield "map", tensor.name, -1
                if tensor.ragged:
                    yield "shape", tensor.name, tensor.lines_axis
            else:
                yield "data", tensor.name, -1
                for i in range(tensor.rank):
                    yield "stride", tensor.name, i
                    if clipped:
                        yield "shape", tensor.name, i
        for leaf in leaves(op):
            if isinstance(leaf, Param):
                yield "scalar" if leaf.axis < 0 else "shape", leaf.name, leaf.axis
