"""Compiles the kernels in CuTe DSL to PTX, without a GPU.

Usage: python -m tools.foreign.compile_cute [NAME...]
"""

# mypy: ignore-errors
# CuTe DSL has no types of its own, and is not where the types are checked.

import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.update(CUTE_DSL_KEEP="ptx", CUTE_DSL_LINEINFO="1", CUTE_DSL_NO_CACHE="1")
os.environ.setdefault("CUTE_DSL_DUMP_DIR", "/tmp")

import cutlass
import numpy as np
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor

from tilepipe.ptx.adapters import cute as adapter, host_memory
from tilepipe.ptx.loading import load
from tools.foreign import (
    cute_attention_kernels,
    cute_box_kernels,
    cute_hopper_attention_kernels,
    cute_hopper_kernels,
    cute_kernels,
    cute_persistent_kernels,
    cute_scaled_kernels,
    record,
)

_ROOT = Path(__file__).parents[2]
_KINDS = {
    "bf16": cutlass.BFloat16, "fp16": cutlass.Float16, "fp32": cutlass.Float32,
    "tf32": cutlass.TFloat32, "fp8e4nv": cutlass.Float8E4M3FN, "fp8e5": cutlass.Float8E5M2,
    "e2m1": cutlass.Float4E2M1FN, "e8m0": cutlass.Float8E8M0FNU, "u8": cutlass.Uint8,
    "i64": cutlass.Int64, "i32": cutlass.Int32,
}  # fmt: skip
_MAP = 128  # bytes of a tensor map, of which the host code writes the first half


@dataclass(frozen=True)
class Tensor:
    """An argument: `kind` of its elements, by the name that Triton has for it."""

    kind: str
    shape: tuple[int, ...]
    by_columns: bool = False

    def fake(self) -> object:
        """What the function is compiled for."""
        order = tuple(range(len(self.shape)))
        return make_fake_compact_tensor(
            _KINDS[self.kind], self.shape, assumed_align=128,
            stride_order=order if self.by_columns else order[::-1],
        )  # fmt: skip

    def zeros(self) -> np.ndarray:
        """An array of as many bytes."""
        nbytes = int(np.prod(self.shape)) * _KINDS[self.kind].width // 8
        return np.zeros(nbytes, np.uint8)


@dataclass(frozen=True)
class Source:
    """A kernel to compile.

    Attributes:
        name: of the record, without compiler and architecture. kernel: the object to compile.
        tensors: its arguments. arch: what it is compiled for. constants: of the kernel.
        numbers: arguments after the tensors.
    """

    name: str
    kernel: object
    tensors: dict[str, Tensor]
    arch: str = "sm_100a"
    constants: dict[str, object] = field(default_factory=dict)
    numbers: tuple[float, ...] = ()


def compiled(source: Source) -> Any:
    """What `cute.compile` makes of a kernel."""
    fakes = [tensor.fake() for tensor in source.tensors.values()]
    return cute.compile(source.kernel, *fakes, *source.numbers, options=f"--gpu-arch {source.arch}")


def recorded(source: Source) -> record.Recorded:
    """A kernel, compiled, and what its host code passes to the launch."""
    made = compiled(source)
    ptx = made.artifacts.PTX
    arrays = {name: tensor.zeros() for name, tensor in source.tensors.items()}
    (host,) = adapter.host_launches(made, load(ptx), [*arrays.values(), *source.numbers], {})
    module = sys.modules[type(source.kernel).__module__]
    file = Path(module.__file__).resolve().relative_to(_ROOT)
    return record.Recorded(
        name=f"cute_{source.name}_{source.arch.replace('_', '').removesuffix('a')}",
        compiler=f"CuTe DSL {version('nvidia-cutlass-dsl')}",
        source=f"{file}: {type(source.kernel).__name__}",
        arch=source.arch,
        entry=host.entry,
        grid=list(host.grid),
        block=list(host.block),
        cluster=list(host.cluster),
        smem=host.smem,
        types={name: tensor.kind for name, tensor in source.tensors.items()},
        parameters=[_parameter(raw, arrays) for raw in host.parameters],
        constants=source.constants,
        ptx=ptx.replace(f"{_ROOT}/", ""),
    )


def _parameter(raw: bytes, arrays: dict[str, np.ndarray]) -> dict[str, object]:
    """A parameter's bytes, and which of them are addresses of arrays, and how far into them."""
    found = {}
    for name, array in arrays.items():
        low, _ = host_memory.place_of(array)
        for offset in adapter.pointers(raw, [array]):
            word = int.from_bytes(raw[offset : offset + 8], "little")
            found[offset] = [name, word - low]
            raw = raw[:offset] + bytes(8) + raw[offset + 8 :]
    written = raw[: _MAP // 2] if len(raw) == _MAP and 0 in found else raw
    return {
        "kind": "struct", "size": len(raw), "bytes": written.rstrip(b"\0").hex(),
        "pointers": found,
    }  # fmt: skip


def _product(
    name: str, kind: str, tile: tuple[int, int, int], *, pair: bool = False, stages: int = 3,
    a_major: str = "K", b_major: str = "K", negated: tuple[str, ...] = (),
) -> Source:  # fmt: skip
    """A product of 2 x 2 tiles and 4 steps; of a pair of CTAs each has half of A and half of B."""
    m, n, k = tile
    kernel = cute_kernels.Product(
        _KINDS[kind], tile, stages, pair=pair, a_major=a_major, b_major=b_major, negated=negated
    )
    constants = {"M": m, "N": n, "K": k, "PAIR": pair, "A_MAJOR": a_major, "B_MAJOR": b_major}
    if negated:
        constants["NEGATED"] = negated
    return Source(name, kernel, _operands(kind, tile, a_major, b_major), constants=constants)


def _operands(
    kind: str, tile: tuple[int, int, int], a_major: str = "K", b_major: str = "K", out: str = "fp32"
) -> dict[str, Tensor]:
    """A, B and D of a product of 2 x 2 tiles and 4 steps."""
    m, n, k = tile
    return {
        "a": Tensor(kind, (2 * m, 4 * k), a_major != "K"),
        "b": Tensor(kind, (2 * n, 4 * k), b_major != "K"),
        "d": Tensor(out, (2 * m, 2 * n)),
    }


def _hopper_product(
    name: str, kind: str, out: str, *, shares: bool = False, a_major: str = "K", b_major: str = "K"
) -> Source:
    """A product of 2 x 2 tiles and 4 steps for sm_90a."""
    tile = 128, 128, 64 if _KINDS[kind].width == 16 else 128
    kernel = cute_hopper_kernels.HopperProduct(
        _KINDS[kind], _KINDS[out], tile, 3, shares=shares, a_major=a_major, b_major=b_major
    )
    constants = dict(zip("MNK", tile, strict=True)) | {"A_MAJOR": a_major, "B_MAJOR": b_major}
    return Source(name, kernel, _operands(kind, tile, a_major, b_major, out), "sm_90a", constants)


def _persistent(
    name: str, kind: str, out: str, tile: tuple[int, int, int], *, pair: bool = False,
    by_columns: bool = False,
) -> Source:  # fmt: skip
    """Four tiles of 512 rows, for clusters of two CTAs."""
    m, n, k = 512, 2 * tile[1], 2 * tile[2]
    kernel = cute_persistent_kernels.PersistentProduct(
        _KINDS[kind], _KINDS[out], tile, 3, pair=pair
    )
    tensors = {
        "a": Tensor(kind, (m, k)), "b": Tensor(kind, (n, k)), "d": Tensor(out, (m, n), by_columns)
    }  # fmt: skip
    constants = {"SHAPE": [m, n, k], "BY_COLUMNS": by_columns}
    return Source(name, kernel, tensors, constants=constants)


def _scaled(
    name: str, kind: str, scale: str, group: int, depth: int, *, crossed: bool = False
) -> Source:
    """A product of one tile and two steps, with a scale for each `group` of elements."""
    m, n, k = 128, 128, 2 * depth
    tile = m, n, depth
    kernel = cute_scaled_kernels.ScaledProduct(
        _KINDS[kind], _KINDS[scale], group, tile, 2, crossed=crossed
    )
    tensors = {
        "a": Tensor(kind, (m, k)), "b": Tensor(kind, (n, k)),
        "a_scale": Tensor(scale, (m * k // group,)), "b_scale": Tensor(scale, (n * k // group,)),
        "d": Tensor("fp32", (m, n)),
    }  # fmt: skip
    element = "e2m1" if kind == "e2m1" else "e4m3"
    constants = {
        "BM": m, "BN": n, "BK": depth, "GROUP": group, "A_TYPE": element, "B_TYPE": element
    }  # fmt: skip
    if crossed:
        constants["CROSSED"] = True
    return Source(name, kernel, tensors, constants=constants)


def _attention(arch: str, kernel: object, rows: int) -> Source:
    """Queries of one head, and three blocks of 64 keys."""
    keys, depth = 64, 64
    tensors = {name: Tensor("bf16", (3 * keys, depth)) for name in ("q", "k", "v", "out")}
    tensors |= {name: Tensor("bf16", (rows, depth)) for name in ("q", "out")}
    constants = {"BM": rows, "BN": keys, "D": depth}
    scale = 1 / (math.log(2) * math.sqrt(depth))
    return Source("attention", kernel, tensors, arch, constants, (scale,))


def _boxes() -> Iterator[Source]:
    """Copies of boxes that are smaller than the tensors, so that no dimensions merge."""
    u8, i32 = (2, 8, 16), (4, 16)
    for shared in (False, True):
        for pair in (False, True):
            yield Source(
                "boxes_copied" + "_shared" * shared + "_pair" * pair,
                cute_box_kernels.BoxesCopied(_KINDS["u8"], u8, shared=shared, pair=pair),
                {"x": Tensor("u8", (4, 16, 32)), "out": Tensor("u8", (2, 256))},
                constants={"BOX": u8, "SHAPE": (4, 16, 32), "SHARED": shared},
            )
    yield Source(
        "boxes_copied_i32_pair", cute_box_kernels.BoxesCopied(_KINDS["i32"], i32, pair=True),
        {"x": Tensor("i32", (8, 32)), "out": Tensor("i32", (2, 64))},
        constants={"BOX": i32, "SHAPE": (8, 32), "SHARED": False},
    )  # fmt: skip
    for kind, box, swizzled in (("fp32", (64,), False), ("i64", (16, 8), True)):
        x = Tensor(kind, (2 * box[0], *box[1:]))
        yield Source(
            f"boxes_passed_{kind}",
            cute_box_kernels.BoxesPassed(_KINDS[kind], box, swizzled=swizzled),
            {"x": x, "out": x}, constants={"SHAPE": x.shape},
        )  # fmt: skip
    rows = Tensor("fp32", (128, 4))
    yield Source("copied_to_columns", cute_box_kernels.CopiedToColumns(), {"x": rows, "out": rows})
    numbers = Tensor("i32", (64,))
    yield Source("handed_over", cute_box_kernels.HandedOver(), {"x": numbers, "out": numbers})


def sources() -> Iterator[Source]:
    """All kernels."""
    x = Tensor("fp32", (1000,))
    yield Source("scaled_copy", cute_kernels.ScaledCopy(), {"x": x, "y": x})
    yield _product("product", "bf16", (128, 128, 64))
    yield _product("product_64_rows", "fp16", (64, 64, 64))
    yield _product("product_a_columns", "bf16", (128, 64, 64), a_major="MN")
    yield _product("product_b_rows", "bf16", (128, 128, 64), b_major="MN")
    yield _product("product_a_columns_b_rows", "fp16", (128, 64, 32), a_major="MN", b_major="MN")
    yield _product("product_fp8", "fp8e4nv", (128, 128, 128))
    yield _product("product_tf32", "tf32", (128, 64, 32))
    yield _product("product_short_rows", "bf16", (128, 64, 32))
    yield _product("product_negated", "fp16", (128, 64, 64), negated=("A", "B", "AB", ""))
    yield _product("pair_product_128_rows", "bf16", (128, 64, 64), pair=True)
    yield _product("pair_product", "bf16", (256, 128, 64), pair=True)
    yield _product("pair_product_b_rows", "bf16", (256, 128, 64), pair=True, b_major="MN")
    yield _product("pair_product_fp8", "fp8e4nv", (256, 128, 128), pair=True, stages=2)
    yield _product("pair_product_tf32", "tf32", (256, 64, 32), pair=True)
    yield _persistent("persistent_pair_product", "bf16", "bf16", (256, 256, 64), pair=True)
    yield _persistent("persistent_product", "bf16", "fp16", (128, 128, 64), by_columns=True)
    yield _persistent("persistent_product_fp8", "fp8e4nv", "fp32", (128, 64, 128))
    yield _scaled("scaled_product_mxf8", "fp8e4nv", "e8m0", 32, 128)
    yield _scaled("scaled_product_mxf4", "e2m1", "e8m0", 32, 256)
    yield _scaled("scaled_product_nvf4", "e2m1", "fp8e4nv", 16, 256)
    yield _scaled("scaled_product_crossed", "fp8e4nv", "e8m0", 32, 128, crossed=True)
    yield from _boxes()
    yield _attention("sm_100a", cute_attention_kernels.Attention(), 128)
    yield _attention("sm_90a", cute_hopper_attention_kernels.HopperAttention(), 64)
    yield _hopper_product("product", "bf16", "bf16")
    yield _hopper_product("product_shared", "bf16", "fp16", shares=True)
    yield _hopper_product("product_fp8", "fp8e4nv", "bf16")
    yield _hopper_product("product_a_columns_b_rows", "fp16", "bf16", a_major="MN", b_major="MN")


def main() -> None:
    """Compiles those whose names have one of the words given, or all, and records them."""
    chosen = sys.argv[1:]
    made = []
    for source in sources():
        if chosen and not any(word in source.name for word in chosen):
            continue
        made.append(recorded(source))
        print(f"{made[-1].name}: {len(made[-1].ptx.splitlines())} lines", flush=True)
    record.write("cute", made, some=bool(chosen))


if __name__ == "__main__":
    main()
