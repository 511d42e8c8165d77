"""A program as an exported kernel: which extents are free, and the grid as an expression of
them.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilepipe import cuda
from tilepipe.cuda.codegen.parameters import arguments
from tilepipe.cuda.runtime import interop
from tilepipe.errors import ExportError
from tilepipe.export.conditions import conditions
from tilepipe.export.manifest import Manifest, Passed, Scalar, Tensor
from tilepipe.export.rules import Rule
from tilepipe.export.writing import write
from tilepipe.host_arguments import plain, plain_bool, plain_int, shown
from tilepipe.ir.arrays import byte_strides
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.expressions import Expr
from tilepipe.ir.memory import ScalarParam, TensorParam
from tilepipe.ir.program import Launch, TensorArg
from tilepipe.program.grid_rule import grid_rule
from tilepipe.program.program import Program


def export(
    program: Program,
    directory: str | os.PathLike[str],
    *,
    name: str | None = None,
    extents: Mapping[str, Sequence[int | str]],
    zero: Sequence[str] = (),
    arch: str | None = None,
    replace: bool = False,
) -> Path:
    """`Program.export`."""
    _check_kinds(directory, name, extents, zero)
    if plain_bool(replace) is None:
        raise ExportError(
            f"replace= says whether files of another kernel may go: True or False; got"
            f" {shown(replace)}"
        )
    manifest, cubin = described(program, name=name, extents=extents, zero=zero, arch=arch)
    return write(Path(directory), manifest, cubin, replace=bool(replace))


def described(
    program: Program,
    *,
    name: str | None = None,
    extents: Mapping[str, Sequence[int | str]],
    zero: Sequence[str] = (),
    arch: str | None = None,
) -> tuple[Manifest, bytes]:
    """The manifest of a program, and its cubin.

    Raises:
        ExportError, CompileError: as `Program.export`.
    """
    kernel, launch, grid = program.kernel, program.launch_args, program.grid_function
    if grid is None:
        raise ExportError(f"'{kernel.name}' was not bound by a kernel: export what bind() gives")
    named = _named_extents(launch, extents)
    for tensor in zero:
        if tensor not in named:
            raise ExportError(
                f"zero= of '{kernel.name}' names '{tensor}'; its tensors are"
                f" {', '.join(named) or 'none'}"
            )
    parameters = _parameters(launch, named, zero)
    names: dict[tuple[str, int], Rule] = {
        (n, axis): extent for n, of in named.items() for axis, extent in enumerate(of)
    }
    scalars = {x.param.name for x in parameters if isinstance(x, Scalar)}
    names |= {(n, -1): n for n in scalars}
    rule = grid_rule(grid.given, grid.known, named, scalars)
    checked = conditions(kernel, names)
    made = cuda.compile(kernel, arch)
    of_chip = callable(grid.given) and "chip" in inspect.signature(grid.given).parameters
    manifest = Manifest(
        name=kernel.name if name is None else name,
        kernel=kernel.name,
        entry=made.name,
        arch=made.arch,
        sms=launch.chip.sms if of_chip else 0,
        threads=made.threads,
        cluster=made.cluster,
        smem_bytes=made.smem_bytes,
        cooperative=kernel.cooperative,
        parameters=parameters,
        arguments=tuple(Passed(a.kind, a.param.name, a.axis) for a in arguments(kernel)),
        grid=rule,
        conditions=checked,
        cubin_bytes=len(made.data),
        cubin_sha256=hashlib.sha256(made.data).hexdigest(),
        source_sha256=hashlib.sha256(made.source.encode()).hexdigest(),
    )
    return manifest, made.data


def _check_kinds(directory: object, name: object, extents: object, zero: object) -> None:
    """Raises ExportError for arguments of another kind than `export` takes."""
    if not isinstance(directory, str | os.PathLike) or not os.fspath(directory):
        raise ExportError(f"directory is the path of a directory; got {shown(directory)}")
    if name is not None and not isinstance(name, str):
        raise ExportError(f"name= is the name of the files and functions; got {shown(name)}")
    if not isinstance(extents, Mapping) or not all(
        isinstance(tensor, str) and isinstance(of, Sequence) for tensor, of in extents.items()
    ):
        raise ExportError(
            'extents= has the extents of tensors by name, as {"a": ("m", 64)}; got'
            f" {shown(extents)}"
        )
    if not isinstance(zero, tuple | list) or not all(isinstance(x, str) for x in zero):
        raise ExportError(f'zero= has names of tensors, as ("partial",); got {shown(zero)}')


def _named_extents(
    launch: Launch, extents: Mapping[str, Sequence[int | str]]
) -> dict[str, tuple[int | str, ...]]:
    """The extents of each tensor of a launch: as `extents` has them, or numbers."""
    shapes = {n: arg.shape for n, arg in launch.args.items() if isinstance(arg, TensorArg)}
    kernel = launch.kernel.name
    found: dict[str, tuple[int | str, ...]] = {n: tuple(map(int, s)) for n, s in shapes.items()}
    stands: dict[str, tuple[int, str]] = {}  # by name: the extent and where it is
    for tensor, of in extents.items():
        if tensor not in shapes:
            raise ExportError(
                f"extents= of '{kernel}' names '{tensor}'; its tensors are"
                f" {', '.join(shapes) or 'none'}"
            )
        shape = shapes[tensor]
        given = tuple(x if isinstance(x, str) else plain_int(x) for x in of)
        if isinstance(of, str) or len(given) != len(shape):
            raise ExportError(
                f"extents= of '{tensor}' are {len(shape)}, names or numbers, for its shape"
                f" {shape}; got {shown(of)}"
            )
        for axis, (extent, actual) in enumerate(zip(given, shape, strict=True)):
            here = f"{tensor}.shape[{axis}]"
            if extent is None or (isinstance(extent, int) and extent != actual):
                raise ExportError(
                    f"extents= says {shown(of[axis])} of {here}, which is {actual} in the program;"
                    " a name leaves it to each launch"
                )
            if isinstance(extent, str):
                value, place = stands.setdefault(extent, (actual, here))
                if value != actual:
                    raise ExportError(
                        f"extents= calls {place} and {here} '{extent}', but they are {value} and"
                        f" {actual} in the program"
                    )
        found[tensor] = tuple(x for x in given if x is not None)
    return found


def _parameters(
    launch: Launch, named: Mapping[str, tuple[int | str, ...]], zero: Sequence[str]
) -> tuple[Tensor | Scalar, ...]:
    written, _ = tensor_uses(launch.kernel)
    requirements = launch.kernel.requirements
    zeros = {*zero, *(x.holds.name for x in requirements if not isinstance(x.holds, Expr))}
    found: list[Tensor | Scalar] = []
    for p in launch.kernel.params:
        arg = launch.args[p.name]
        if isinstance(p, TensorParam):
            assert isinstance(arg, TensorArg)
            strides = _strides(p, arg)
            memory = _memory(p, strides)
            free = any(isinstance(n, str) for n in named[p.name])
            dense = strides == _dense_strides(memory, arg.shape)
            found.append(
                Tensor(
                    p,
                    named[p.name],
                    memory,
                    None if free or dense else strides,  # strides change with free extents
                    p.name in written,
                    p.name in zeros,
                )
            )
        else:
            assert isinstance(p, ScalarParam)
            assert not isinstance(arg, TensorArg)
            value = float(np.float32(arg)) if p.dtype.is_float else int(plain(arg))
            found.append(Scalar(p, value))
    return tuple(found)


def _strides(p: TensorParam, arg: TensorArg) -> tuple[int, ...]:
    """The strides of a tensor in elements."""
    array: Any = arg.array
    there = interop.is_device_array(array)
    given = interop.view(array).byte_strides if there else byte_strides(array)
    return tuple(s * 8 // p.dtype.bits for s in given)


def _memory(p: TensorParam, strides: Sequence[int]) -> tuple[int, ...]:
    """The dimensions as they lie in memory, outermost first: the contiguous one last, and of two
    with the same stride, of which one has extent 1, the first before the other.
    """
    others = [axis for axis in range(p.rank) if axis != p.contiguous_axis]
    return (*sorted(others, key=lambda axis: -strides[axis]), p.contiguous_axis)


def _dense_strides(memory: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a tensor without gaps."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(memory):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)
