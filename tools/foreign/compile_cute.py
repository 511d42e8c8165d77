"""Compiles the kernels in CuTe DSL to PTX, without a GPU.

Usage: python -m tools.foreign.compile_cute [NAME...]
"""

# mypy: ignore-errors
# CuTe DSL has no types of its own, and is not where the types are checked.

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

os.environ.update(CUTE_DSL_KEEP_PTX="1", CUTE_DSL_LINEINFO="1", CUTE_DSL_NO_CACHE="1")
os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")
os.environ.setdefault("CUTE_DSL_DUMP_DIR", "/tmp")

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor

from tools.foreign import cute_kernels, record

_ROOT = Path(__file__).parents[2]
_KINDS = {
    "bf16": cutlass.BFloat16, "fp16": cutlass.Float16, "fp32": cutlass.Float32,
    "tf32": cutlass.TFloat32, "fp8e4nv": cutlass.Float8E4M3FN, "fp8e5": cutlass.Float8E5M2,
}  # fmt: skip


@dataclass(frozen=True)
class Source:
    """A kernel to compile.

    Attributes:
        name: of the record, without compiler and architecture. kernel: the object to compile.
        tensors: what it is compiled for. parameters: of the entry point, as the record has them.
        smem: bytes of dynamic shared memory. cluster: CTAs. constants: of the kernel.
    """

    name: str
    kernel: object
    tensors: tuple[object, ...]
    parameters: list[dict[str, object]]
    smem: int = 0
    cluster: int = 1
    constants: dict[str, object] = field(default_factory=dict)


def compiled(source: Source) -> record.Recorded:
    """A kernel, compiled and recorded."""
    arch = os.environ["CUTE_DSL_ARCH"]
    ptx = cute.compile(source.kernel, *source.tensors).artifacts.PTX
    (entry,) = re.findall(r"\.entry (\w+)", ptx)
    kind = type(source.kernel).__name__
    return record.Recorded(
        name=f"cute_{source.name}_{arch.replace('_', '').removesuffix('a')}",
        compiler=f"CuTe DSL {version('nvidia-cutlass-dsl')}",
        source=f"tools/foreign/cute_kernels.py: {kind}",
        arch=arch,
        entry=entry,
        block=[cute_kernels.THREADS, 1, 1],
        cluster=[source.cluster, 1, 1],
        smem=source.smem,
        parameters=source.parameters,
        constants=source.constants,
        ptx=ptx.replace(f"{_ROOT}/", ""),
    )


def _tensor(kind: str, shape: tuple[int, int], *, by_columns: bool = False) -> object:
    order = (0, 1) if by_columns else (1, 0)
    return make_fake_compact_tensor(_KINDS[kind], shape, stride_order=order, assumed_align=128)


def _product(
    name: str, kind: str, tile: tuple[int, int, int], *, pair: bool = False, stages: int = 3,
    a_major: str = "K", b_major: str = "K",
) -> Source:  # fmt: skip
    """A product of 2 x 2 tiles and 4 steps. A tile's rows are as long as its swizzle, or 128 bytes;
    of a pair of CTAs each has half of A and half of B.
    """
    m, n, k = tile
    rows, columns = (m // 2, n // 2) if pair else (m, n)
    nbytes = _KINDS[kind].width // 8
    maps = []
    for operand, major, across in (("a", a_major, rows), ("b", b_major, columns)):
        inner = k if major == "K" else across
        swizzle = next(s for s in (128, 64, 32) if inner * nbytes % s == 0)
        box = [across, swizzle // nbytes] if major == "K" else [k, swizzle // nbytes]
        maps.append({"kind": "map", "name": operand, "type": kind, "box": box, "swizzle": swizzle})
    state = 64 if pair else 32  # of the MMA: whether it adds, what it negates, which lanes it skips
    return Source(
        name,
        cute_kernels.Product(_KINDS[kind], tile, stages, pair=pair, a_major=a_major,
                             b_major=b_major),
        (
            _tensor(kind, (2 * m, 4 * k), by_columns=a_major != "K"),
            _tensor(kind, (2 * n, 4 * k), by_columns=b_major != "K"),
            _tensor("fp32", (2 * m, 2 * n)),
        ),
        [{"kind": "zeros", "name": "mma", "bytes": state}, *maps, {"kind": "pointer", "name": "d"}],
        smem=1024 + stages * (rows + columns) * k * nbytes,
        cluster=2 if pair else 1,
        constants={"M": m, "N": n, "K": k, "PAIR": pair, "A_MAJOR": a_major, "B_MAJOR": b_major},
    )  # fmt: skip


def sources() -> Iterator[Source]:
    """All kernels."""
    x = make_fake_compact_tensor(cutlass.Float32, (1000,))
    pointers = [{"kind": "pointer", "name": name} for name in ("x", "y")]
    yield Source("scaled_copy", cute_kernels.ScaledCopy(), (x, x), pointers)
    yield _product("product", "bf16", (128, 128, 64))
    yield _product("product_64_rows", "fp16", (64, 64, 64))
    yield _product("product_a_columns", "bf16", (128, 64, 64), a_major="MN")
    yield _product("product_b_rows", "bf16", (128, 128, 64), b_major="MN")
    yield _product("product_a_columns_b_rows", "fp16", (128, 64, 32), a_major="MN", b_major="MN")
    yield _product("product_fp8", "fp8e4nv", (128, 128, 128))
    yield _product("product_tf32", "tf32", (128, 64, 32))
    yield _product("product_short_rows", "bf16", (128, 64, 32))
    yield _product("pair_product", "bf16", (256, 128, 64), pair=True)
    yield _product("pair_product_b_rows", "bf16", (256, 128, 64), pair=True, b_major="MN")
    yield _product("pair_product_fp8", "fp8e4nv", (256, 128, 128), pair=True, stages=2)
    yield _product("pair_product_tf32", "tf32", (256, 64, 32), pair=True)


def main() -> None:
    """Compiles those whose names have one of the words given, or all, and records them."""
    chosen = sys.argv[1:]
    made = []
    for source in sources():
        if chosen and not any(word in source.name for word in chosen):
            continue
        made.append(compiled(source))
        print(f"{made[-1].name}: {len(made[-1].ptx.splitlines())} lines", flush=True)
    record.write("cute", made, some=bool(chosen))


if __name__ == "__main__":
    main()
