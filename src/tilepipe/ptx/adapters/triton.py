"""Launches of kernels that Triton or Gluon has compiled.

A compiled kernel says how it is launched: its signature, which arguments are constants, and
metadata. The launcher of Triton passes to the entry point: for a pointer, its address; for a tensor
descriptor, the tensor map, the extents and the strides in elements; then the addresses of global
scratch memory and of scratch memory of the profiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.host_arguments import shown
from tilepipe.ptx import limits
from tilepipe.ptx.adapters.host_memory import array_of
from tilepipe.ptx.arguments.tensor_map import TensorMap
from tilepipe.ptx.arguments.values import Argument, Pointer
from tilepipe.ptx.lanes import WARP
from tilepipe.ptx.launch import Launch
from tilepipe.ptx.loading import load

Array = npt.NDArray[Any]
_SWIZZLES = (0, 32, 64, 128)  # CUtensorMapSwizzle
# a type of Triton's -> that of a tensor map's elements, where the array's is not enough
_FP4 = "b4x16_p64"


class _Source(Protocol):
    @property
    def signature(self) -> Mapping[str, object]: ...
    @property
    def constants(self) -> Mapping[Any, object]: ...


class CompiledKernel(Protocol):
    """A result of `triton.compile` or of a launch, as far as it is used here."""

    @property
    def src(self) -> _Source: ...
    @property
    def asm(self) -> Mapping[str, Any]: ...
    @property
    def metadata(self) -> Any: ...  # a tuple with names, of what the compiler noted


class Descriptor(Protocol):
    """A tensor descriptor of the host (`triton.tools.tensor_descriptor`)."""

    @property
    def base(self) -> object: ...
    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def strides(self) -> Sequence[int]: ...
    @property
    def block_shape(self) -> Sequence[int]: ...


def from_triton(
    compiled: CompiledKernel, *args: object, grid: int | Sequence[int], **kwargs: object
) -> Launch:
    """The launch of a kernel compiled by Triton or Gluon.

    Args:
        compiled: by `triton.compile`, or what a launch of the kernel returned.
        args, kwargs: of the kernel, in order or by name, without those that are constants: arrays,
            tensors of PyTorch on the CPU, numbers, a `Pointer` for a tensor of addresses. For a
            tensor descriptor either one (with such a tensor as its base) or the array that it is
            to describe.
        grid: of programs; each runs on a cluster of as many CTAs as the kernel was compiled for.

    Raises:
        BindError: this is no compiled kernel, or the arguments are not those of the kernel.
    """
    if not all(hasattr(compiled, n) for n in ("src", "asm", "metadata")):
        raise BindError(
            "from_triton takes what triton.compile, or a launch of the kernel, returned; got"
            f" {shown(compiled)}"
        )
    if "ptx" not in compiled.asm:
        raise BindError(
            f"from_triton takes a kernel with PTX; this one has {', '.join(compiled.asm) or 'none'}"
        )
    metadata = compiled.metadata
    signature = {n: t for n, t in compiled.src.signature.items() if t != "constexpr"}
    values = _by_name(metadata.name, signature, args, kwargs)
    maps = iter(getattr(metadata, "tensordesc_meta", None) or ())
    found: list[Argument] = []
    for name, kind in signature.items():
        found += _arguments(name, kind, values[name], maps)
    if callable(grid):
        raise BindError(
            "grid is one to three integers; got a function: call it with the kernel's constants"
        )
    extents = limits.extents("grid", grid)
    ctas = metadata.num_ctas
    for scratch in ("global", "profile"):
        nbytes = getattr(metadata, f"{scratch}_scratch_size", 0) * prod(extents) * ctas
        found.append(np.zeros(nbytes, np.uint8) if nbytes else 0)
    kernel = load(compiled.asm["ptx"])[metadata.name]
    return kernel.bind(
        found,
        grid=(extents[0] * ctas, *extents[1:]),
        block=WARP * metadata.num_warps,
        cluster=ctas,
        smem=metadata.shared,
        cooperative=bool(getattr(metadata, "launch_cooperative_grid", False)),
    )


def _by_name(
    kernel: str, signature: Mapping[str, object], args: Sequence[object], kwargs: dict[str, object]
) -> dict[str, object]:
    """The arguments by their names.

    Raises:
        BindError: there are others, or too few.
    """
    values = dict(zip(signature, args, strict=False)) | kwargs
    if len(args) + len(kwargs) != len(values) or values.keys() != signature.keys():
        given = ", ".join([f"{len(args)} in order", *kwargs])
        raise BindError(
            f"'{kernel}' takes ({', '.join(signature)}), without its constants; given: {given}"
        )
    return values


def _arguments(
    name: str, kind: object, value: object, maps: Iterator[Mapping[str, Any]]
) -> list[Argument]:
    """The values that the launcher passes for an argument."""
    if not isinstance(kind, str):  # of a tuple, for each of its parts
        assert isinstance(kind, Sequence)
        if not isinstance(value, Sequence) or len(value) != len(kind):
            raise BindError(f"argument '{name}' is a tuple of {len(kind)}")
        parts = zip(kind, value, strict=True)
        return [a for k, v in parts if k != "constexpr" for a in _arguments(name, k, v, maps)]
    if kind.startswith("tensordesc"):
        return _described(name, value, next(maps, None))
    if isinstance(value, Pointer) and kind.startswith("*"):
        return [value]
    array = array_of(value, name)
    if kind.startswith("*"):
        if array is None and value is not None and not isinstance(value, int):
            raise BindError(
                f"argument '{name}' is {kind}: expected an array or a tensor on the CPU; got"
                f" {type(value).__name__}"
            )
        return [(value if isinstance(value, int) else 0) if array is None else array]
    if not isinstance(value, bool | int | float | np.generic):
        raise BindError(f"argument '{name}' is {kind}; got {type(value).__name__}")
    return [value]


def _described(name: str, value: object, meta: Mapping[str, Any] | None) -> list[Argument]:
    """A tensor map, the extents and the strides of the tensor, in elements."""
    if meta is None:
        raise BindError(
            f"argument '{name}': the kernel was compiled without tensor maps for its descriptors"
        )
    if meta.get("is_im2col"):
        raise BindError(f"argument '{name}': tensor maps of im2col are not modelled")
    nan = tf32 = False
    base: object = value
    if _is_descriptor(value):
        base = value.base
        nan = getattr(value, "padding", "zero") == "nan"
        tf32 = bool(getattr(value, "round_f32_to_tf32", False))
    array = array_of(base, name)
    if array is None:
        raise BindError(
            f"argument '{name}' is a tensor descriptor: expected one, or an array; got"
            f" {type(value).__name__}"
        )
    size = array.itemsize
    if _is_descriptor(value):
        shape, strides = tuple(value.shape), tuple(value.strides)
    else:
        shape, strides = array.shape, tuple(n // size for n in array.strides)
    packed = bool(meta["fp4_padded"])  # two elements to a byte of the array
    element = _FP4 if packed else "tf32" if tf32 else None
    described = TensorMap(
        array, tuple(meta["block_size"]), _SWIZZLES[meta["swizzle"]], element,
        shape=(*shape[:-1], 2 * shape[-1]) if packed else shape,
        strides=tuple(size * n for n in strides[:-1]),
        nan=nan,
    )  # fmt: skip
    return [described, *map(int, shape), *map(int, strides)]


def _is_descriptor(value: object) -> TypeGuard[Descriptor]:
    return all(hasattr(value, n) for n in ("base", "block_shape", "strides")) and not isinstance(
        value, np.ndarray
    )
