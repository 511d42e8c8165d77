"""Compiles the kernels in Triton and Gluon to PTX, without a GPU.

Usage: TRITON_DEFAULT_FP_FUSION=1 python -m tools.foreign.compile_triton [NAME...]
"""

# mypy: ignore-errors
# Triton has no types of its own, and is not where the types are checked.

import inspect
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from tools.foreign import gluon_kernels, record, triton_kernels as kernels

_ALIGNED = [["tt.divisibility", 16]]
_SWIZZLES = {0: 0, 1: 32, 2: 64, 3: 128}
_ELEMENTS = {"e4m3": "fp8e4nv", "e5m2": "fp8e5", "e2m1": "u8"}
_GLUON = {
    "bf16": gl.bfloat16, "fp16": gl.float16, "fp32": gl.float32, "i32": gl.int32, "u8": gl.uint8,
    "fp8e4nv": gl.float8e4nv, "fp8e5": gl.float8e5,
}  # fmt: skip
_ROOT = Path(__file__).parents[2]


def _parameters(names, signature, constants, metadata) -> list[dict]:
    """What the launcher passes for each argument; those that are constants, it does not pass."""
    found = []
    maps = iter(metadata.tensordesc_meta or ())
    for name in names:
        kind = signature[name]
        if name in constants:
            continue
        if kind.startswith("*"):
            found.append({"kind": "pointer", "name": name, "type": kind[1:]})
        elif not kind.startswith("tensordesc"):
            found.append({"kind": "scalar", "name": name, "type": kind})
        else:
            meta = next(maps)
            box, rank = meta["block_size"], kind.split("[")[1].split("]")[0].count(",") + 1
            found.append({
                "kind": "map", "name": name, "type": kind[11:].split("[")[0], "box": box,
                "swizzle": _SWIZZLES[meta["swizzle"]], "padded_fp4": meta["fp4_padded"],
            })  # fmt: skip
            found += [{"kind": "extent", "name": name, "axis": i} for i in range(rank)]
            found += [{"kind": "stride", "name": name, "axis": i} for i in range(rank)]
    for what in ("global", "profile"):
        found.append({
            "kind": "scratch", "name": what,
            "bytes": getattr(metadata, f"{what}_scratch_size"),
            "align": getattr(metadata, f"{what}_scratch_align"),
        })  # fmt: skip
    return found


@dataclass(frozen=True)
class Source:
    """A kernel to compile.

    Attributes:
        name: of the record, without compiler and architecture. signature: of its arguments.
        constants: those that are constants. unaligned: numbers that are no multiple of 16.
        options: of the compiler. language: "triton" or "gluon".
    """

    name: str
    function: object
    signature: dict[str, str]
    constants: dict[str, object]
    unaligned: tuple[str, ...] = ()
    options: dict[str, object] = field(default_factory=dict)
    language: str = "triton"


def compiled(source: Source, arch: int) -> record.Recorded:
    """A kernel, compiled and recorded."""
    function = source.function
    names = function.arg_names
    signature = {n: source.signature.get(n, "constexpr") for n in names}
    attributes = {
        (i,): _ALIGNED
        for i, n in enumerate(names)
        if signature[n][0] in "*i" and n not in source.unaligned
    }
    constants = {(names.index(n),): value for n, value in source.constants.items()}
    parsed = {"triton": ASTSource, "gluon": GluonASTSource}[source.language]
    made = triton.compile(
        parsed(function, signature, constants, attributes),
        target=GPUTarget("cuda", arch, 32),
        options=source.options,
    )
    metadata = made.metadata
    path = Path(inspect.getsourcefile(function.fn)).resolve().relative_to(_ROOT)
    return record.Recorded(
        name=f"{source.language}_{source.name}_sm{arch}",
        compiler=f"Triton {triton.__version__}",
        source=f"{path}: {function.fn.__name__}",
        arch=f"sm_{arch}a",
        entry=metadata.name,
        block=[32 * metadata.num_warps, 1, 1],
        cluster=[metadata.num_ctas, 1, 1],
        smem=metadata.shared,
        parameters=_parameters(names, signature, source.constants, metadata),
        constants={
            name: value if isinstance(value, int | str) else str(value)
            for name, value in source.constants.items()
        },
        # The compiler notes where the source lay; what is kept is relative to the repository.
        ptx=made.asm["ptx"].replace(f"{_ROOT}/", ""),
    )


def _elementwise(arch: int) -> Iterator[Source]:
    floats = {"x": "*fp32", "out": "*fp32"}
    integers = {"x": "*i32", "out": "*i32"}
    yield Source(
        "vector_add", kernels.vector_add, {**floats, "y": "*fp32", "n": "i32"}, {"BLOCK": 1024},
        ("n",),
    )  # fmt: skip
    yield Source(
        "softmax", kernels.softmax, {**floats, "columns": "i32", "stride": "i32"},
        {"BLOCK": 1024}, ("columns",),
    )  # fmt: skip
    yield Source("histogram", kernels.histogram, {**integers, "n": "i32"}, {"BLOCK": 512}, ("n",))
    yield Source(
        "transpose", kernels.transpose,
        {"x": "*fp16", "out": "*fp16", "rows": "i32", "columns": "i32"}, {"BM": 64, "BN": 64},
    )  # fmt: skip
    yield Source(
        "cumulative_sum", kernels.cumulative_sum, {**integers, "columns": "i32"}, {"BLOCK": 512},
        ("columns",),
    )  # fmt: skip
    yield Source("sort_rows", kernels.sort_rows, integers, {"BLOCK": 256})
    yield Source(
        "convert", kernels.convert,
        {"x": "*fp32", "half": "*fp16", "bfloat": "*bf16", "back": "*fp32", "n": "i32"},
        {"BLOCK": 512},
    )  # fmt: skip


def _maps(tile: dict[str, object], kind: str = "bf16", out: str = "bf16") -> dict[str, str]:
    """The signature of a product whose operands come by tensor maps."""
    bm, bn, bk = tile["BM"], tile["BN"], tile["BK"]
    b = f"{bn},{bk}" if tile.get("TRANSPOSED", True) else f"{bk},{bn}"
    return {
        "a": f"tensordesc<{kind}[{bm},{bk}]>", "b": f"tensordesc<{kind}[{b}]>",
        "c": f"tensordesc<{out}[{bm},{bn}]>", "k": "i32",
    }  # fmt: skip


def _products(arch: int) -> Iterator[Source]:
    # On sm_90 warps specialise only where the kernel makes the maps.
    either, where_allowed = (False, True), (False, True) if arch >= 100 else (False,)
    tile = {"BM": 128, "BN": 128, "BK": 64, "STAGES": 3}
    steps = {"k": "i32", "a_stride": "i32", "b_stride": "i32", "c_stride": "i32"}
    for kind, depth in (("bf16", 64), ("fp32", 32)):
        pointers = {"a": f"*{kind}", "b": f"*{kind}", "c": "*fp32"}
        yield Source(f"gemm_{kind}", kernels.gemm, pointers | steps, tile | {"BK": depth})
    for transposed in either:
        for specialised in where_allowed:
            name = "gemm_tma" + "_transposed" * transposed + "_specialised" * specialised
            constants = tile | {"SPECIALISED": specialised, "TRANSPOSED": transposed}
            yield Source(name, kernels.gemm_tma, _maps(constants), constants)
    by_rows = tile | {"SPECIALISED": False, "TRANSPOSED": True}
    small = by_rows | {"BN": 64, "BK": 128}
    yield Source("gemm_tma_fp8", kernels.gemm_tma, _maps(small, "fp8e4nv", "fp32"), small)
    if arch >= 100:
        yield Source("gemm_tma_clc", kernels.gemm_tma, _maps(by_rows), by_rows, (), {"clc": True})
    wide = by_rows | {"BN": 256}
    yield Source(
        "gemm_tma_8_warps", kernels.gemm_tma, _maps(wide, "fp16"), wide, (), {"num_warps": 8}
    )
    low = by_rows | {"BM": 64, "BN": 32}
    yield Source("gemm_tma_64_rows", kernels.gemm_tma, _maps(low), low)
    tall = by_rows | {"BM": 256}
    yield Source("gemm_tma_two_ctas", kernels.gemm_tma, _maps(tall), tall, (), {"num_ctas": 2})
    extents = {"m": "i32", "n": "i32", "k": "i32"}
    pointers = {"a": "*bf16", "b": "*bf16", "c": "*bf16"} | extents
    for specialised in either:
        constants = tile | {"SPECIALISED": specialised}
        name = "gemm_device_maps" + "_specialised" * specialised
        yield Source(name, kernels.gemm_device_maps, pointers, constants)
    for specialised in where_allowed:
        constants = tile | {"SPECIALISED": specialised}
        name = "gemm_persistent" + "_specialised" * specialised
        yield Source(name, kernels.gemm_persistent, _maps(constants) | extents, constants)
    signature = {
        "q": "tensordesc<bf16[128,64]>", "k": "tensordesc<bf16[64,64]>",
        "v": "tensordesc<bf16[64,64]>", "out": "tensordesc<bf16[128,64]>",
        "length": "i32", "scale": "fp32",
    }  # fmt: skip
    for specialised in where_allowed:
        constants = {"BM": 128, "BN": 64, "D": 64, "STAGES": 2, "SPECIALISED": specialised}
        yield Source(
            "attention" + "_specialised" * specialised, kernels.attention, signature, constants
        )


def _scaled(arch: int) -> Iterator[Source]:
    if arch < 100:
        return
    for name, a, b, group in (
        ("mxf8", "e4m3", "e4m3", 32), ("mxf8_e5m2", "e5m2", "e4m3", 32),
        ("mxf4", "e2m1", "e2m1", 32), ("nvf4", "e2m1", "e2m1", 16), ("mxf8_f4", "e4m3", "e2m1", 32),
    ):  # fmt: skip
        depth = 256 if a == "e2m1" else 128
        boxes = [f"{_ELEMENTS[t]}[128,{depth // (1 + (t == 'e2m1'))}]" for t in (a, b)]
        scale = "*fp8e4nv" if group == 16 else "*u8"
        signature = {
            "a": f"tensordesc<{boxes[0]}>", "a_scale": scale, "b": f"tensordesc<{boxes[1]}>",
            "b_scale": scale, "c": "tensordesc<fp32[128,128]>", "k": "i32",
        }  # fmt: skip
        constants = {
            "BM": 128, "BN": 128, "BK": depth, "STAGES": 2, "GROUP": group, "A_TYPE": a,
            "B_TYPE": b,
        }  # fmt: skip
        yield Source(f"gemm_{name}", kernels.gemm_scaled, signature, constants)
        kind, blocks = scale[1:], depth // group // 4
        for rows in (128, 256) if name in ("mxf8", "nvf4") else (128,):
            factors = f"tensordesc<{kind}[1,{rows // 128},{blocks},2,256]>"
            by_maps = signature | {"a_scale": f"tensordesc<{kind}[1,1,{blocks},2,256]>"}
            by_maps |= {"b_scale": factors, "b": by_maps["b"].replace("[128,", f"[{rows},")}
            by_maps |= {"c": f"tensordesc<fp32[128,{rows}]>"}
            yield Source(
                f"gemm_{name}_scales_by_tma" + f"_{rows}_columns" * (rows > 128),
                kernels.gemm_scaled_tma,
                by_maps,
                constants | {"BN": rows},
            )


_SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b")


def _gluon(arch: int) -> Iterator[Source]:
    if arch < 100:
        return
    through = {"x": "*fp32", "out": "*fp32"}
    for rows, columns in ((128, 64), (64, 32)):
        shapes = _SHAPES  # with 64 rows, 32x32b becomes 16x32bx2
        for place, store in enumerate(shapes):
            load = shapes[(place + 1) % len(shapes)]
            constants = {"M": rows, "N": columns, "STORE": store, "LOAD": load}
            name = f"round_trip_{rows}_rows_{store}_{load}"
            yield Source(
                name, gluon_kernels.tensor_memory_round_trip, through, constants, language="gluon"
            )
    yield Source(
        "far_apart", gluon_kernels.tensor_memory_far_apart, through,
        {"M": 128, "N": 32, "SHAPE": "32x32b"}, language="gluon",
    )  # fmt: skip
    yield Source(
        "two_products_64_rows", gluon_kernels.two_products,
        {"a": "*bf16", "b": "*bf16", "out": "*fp32"}, {"M": 64, "N": 32, "K": 16},
        language="gluon",
    )  # fmt: skip
    for name, kind, m, n, k, a, b, changes in _MULTIPLIED:
        constants = {
            "M": m, "N": n, "K": k, "A_SWIZZLE": a, "B_SWIZZLE": b, "A_BY_COLUMNS": False,
            "B_BY_COLUMNS": True, "A_IN_TENSOR_MEMORY": False, "LOAD": "32x32b", **changes,
        }  # fmt: skip
        first, _, second = kind.partition(" ")
        signature = {"a": f"*{first}", "b": f"*{second or first}", "out": "*fp32"}
        yield Source(
            f"product_{name}", gluon_kernels.product, signature, constants, language="gluon"
        )
    for kind, depth, transposed in (
        ("bf16", 64, False), ("bf16", 64, True), ("fp16", 64, True), ("fp8e4nv", 128, True),
        ("fp8e5", 128, True), ("fp32", 32, True),
    ):  # fmt: skip
        shape, split = ([128, depth], [1, 0]) if transposed else ([depth, 128], [0, 1])
        signature = {
            "a": _described(kind, [256, depth], [1, 0]), "b": _described(kind, shape, split),
            "out": "*fp32", "k": "i32",
        }  # fmt: skip
        constants = {"M": 256, "N": 128, "BK": depth, "TRANSPOSED": transposed, "LOAD": "32x32b"}
        name = f"pair_product_{kind}" + "_transposed" * transposed
        yield Source(
            name, gluon_kernels.pair_product, signature, constants, (), {"num_ctas": 2}, "gluon"
        )


# (type, box, swizzle)
_BOXES = (
    ("u8", [2, 8, 16], 0), ("u8", [2, 16, 128], 128), ("bf16", [16, 16], 32),
    ("bf16", [16, 32], 64), ("fp32", [16, 16], 0), ("fp32", [4, 2, 8, 16], 64),
    ("bf16", [2, 2, 2, 4, 64], 128), ("bf16", [16, 64], 0), ("u8", [16, 64], 0),
    ("u8", [16, 128], 128), ("u8", [16, 64], 64), ("u8", [16, 32], 32), ("fp32", [16, 8], 32),
    ("fp32", [16, 16], 64), ("bf16", [2, 8, 64], 128), ("fp32", [2, 8, 32], 128),
    ("bf16", [2, 2, 8, 64], 128), ("bf16", [2, 2, 8, 32], 64), ("bf16", [2, 2, 8, 16], 32),
    ("u8", [2, 1, 2, 8, 32], 32),
)  # fmt: skip
_SCALED = (
    ("mxf8", "e4m3", "e4m3", 32), ("mxf8_e5m2", "e4m3", "e5m2", 32), ("mxf4", "e2m1", "e2m1", 32),
    ("nvf4", "e2m1", "e2m1", 16),
)  # fmt: skip


def _described(kind: str, shape: list[int], split: list[int] | None = None, **layout) -> str:
    """The type of a tensor map; `split`: the dimension's steps between two CTAs."""
    halves = None if split is None else [split]
    if layout:
        held = gl.NVMMASharedLayout(rank=len(shape), cga_layout=halves, **layout)
    else:
        held = gl.NVMMASharedLayout.get_default_for(shape, _GLUON[kind], cga_layout=halves)
    return f"tensordesc<{kind}[{','.join(map(str, shape))}],{held!r}>"


def _gluon_pairs(arch: int) -> Iterator[Source]:
    if arch < 100:
        return
    for (name, a, b, group), (pair, swizzle) in itertools.product(
        _SCALED, ((False, 128), (True, 128), (False, 64), (False, 32))
    ):
        depth = 256 if a == "e2m1" else 128
        packs = [1 + (t == "e2m1") for t in (a, b)]
        m, n, kind = 256 if pair else 128, 128, "fp8e4nv" if group == 16 else "u8"
        rows, none, whole = ([1, 0], [0, 1, 0, 0, 0], [0] * 5) if pair else (None,) * 3
        plain = {"swizzle_byte_width": 0, "element_bitwidth": 8}
        swizzled = {"swizzle_byte_width": swizzle, "element_bitwidth": 8}
        factors = [depth // group // 4, 2, 256]
        signature = {
            "a": _described(_ELEMENTS[a], [m, depth // packs[0]], rows, **swizzled),
            "b": _described(_ELEMENTS[b], [n, depth // packs[1]], rows, **swizzled),
            "a_scale": _described(kind, [1, m // 128, *factors], none, **plain),
            "b_scale": _described(kind, [1, n // 128, *factors], whole, **plain),
            "out": "*fp32", "k": "i32",
        }  # fmt: skip
        constants = {
            "M": m, "N": n, "BK": depth, "GROUP": group, "A_TYPE": a, "B_TYPE": b,
            "A_PACK": packs[0], "B_PACK": packs[1],
        }  # fmt: skip
        yield Source(
            "pair_" * pair + f"scaled_product_{name}" + f"_{swizzle}" * (swizzle < 128),
            gluon_kernels.scaled_product, signature, constants, (),
            {"num_ctas": 2} if pair else {}, "gluon",
        )  # fmt: skip
    for kind, shape, swizzle in _BOXES:
        bits = _GLUON[kind].primitive_bitwidth
        box = _described(kind, shape, swizzle_byte_width=swizzle, element_bitwidth=bits)
        inner = [1] * (len(shape) - 2)
        registers = gl.BlockedLayout(
            [1] * len(shape), [*inner, 4, 8], [*inner, 4, 1], list(reversed(range(len(shape))))
        )
        yield Source(
            f"passed_through_{len(shape)}d_{kind}_{swizzle}", gluon_kernels.passed_through,
            {"x": box, "out": box, "value": "i32"},
            {"AT": [0] * len(shape), "REGISTERS": registers}, ("value",), language="gluon",
        )  # fmt: skip
    yield Source(
        "sent_to_all", gluon_kernels.sent_to_all,
        {"x": _described("bf16", [64, 64], [0, 0]), "out": "*bf16"}, {"M": 64, "N": 64}, (),
        {"num_ctas": 2}, "gluon",
    )  # fmt: skip
    for kind in ("fp32", "bf16", "fp16", "i32"):
        box = _described(kind, [1, 16, 32])
        yield Source(
            f"added_by_tma_{kind}", gluon_kernels.added_by_tma, {"x": box, "out": box},
            {"M": 16, "N": 32, "TIMES": 2}, language="gluon",
        )  # fmt: skip


# (name, type or types, M, N, K, swizzles of A and of B, what else is not the default)
_MULTIPLIED = (
    ("a_128_b_128", "bf16", 128, 64, 64, 128, 128, {}),
    ("a_64_b_64", "bf16", 128, 64, 32, 64, 64, {"LOAD": "16x256b"}),
    ("a_32_b_32", "bf16", 128, 32, 16, 32, 32, {"LOAD": "16x128b"}),
    ("a_columns_b_rows", "bf16", 128, 64, 64, 128, 128,
     {"A_BY_COLUMNS": True, "B_BY_COLUMNS": False}),
    ("a_columns_64_b_rows_64", "bf16", 128, 64, 64, 64, 64,
     {"A_BY_COLUMNS": True, "B_BY_COLUMNS": False, "LOAD": "16x64b"}),
    ("a_columns_32_b_rows_32", "fp16", 128, 32, 32, 32, 32,
     {"A_BY_COLUMNS": True, "B_BY_COLUMNS": False}),
    ("a_in_tensor_memory", "bf16", 128, 64, 64, 0, 128, {"A_IN_TENSOR_MEMORY": True}),
    ("a_in_tensor_memory_fp16", "fp16", 128, 128, 128, 0, 64,
     {"A_IN_TENSOR_MEMORY": True, "B_BY_COLUMNS": False}),
    ("64_rows", "bf16", 64, 64, 64, 128, 128, {"LOAD": "16x256b"}),
    ("64_rows_by_halves", "bf16", 64, 64, 64, 128, 128, {"LOAD": "32x32b"}),
    ("tf32", "fp32", 128, 64, 32, 128, 128, {}),
    ("tf32_64", "fp32", 128, 32, 16, 64, 64, {"LOAD": "16x256b"}),
    ("tf32_32", "fp32", 128, 32, 8, 32, 32, {}),
    ("64_rows_a_in_tensor_memory", "bf16", 64, 64, 32, 0, 64, {"A_IN_TENSOR_MEMORY": True}),
    ("64_rows_a_in_tensor_memory_32", "fp16", 64, 32, 16, 0, 32, {"A_IN_TENSOR_MEMORY": True}),
    ("a_in_tensor_memory_b_rows", "fp16", 128, 128, 64, 0, 128,
     {"A_IN_TENSOR_MEMORY": True, "B_BY_COLUMNS": False}),
    ("fp8", "fp8e4nv", 128, 64, 128, 128, 128, {}),
    ("fp8_64", "fp8e4nv", 128, 32, 64, 64, 64, {}),
    ("fp8_32", "fp8e4nv", 128, 32, 32, 32, 32, {}),
    ("fp8_e5m2_e4m3", "fp8e5 fp8e4nv", 128, 32, 128, 128, 128, {}),
    ("fp8_e4m3_e5m2", "fp8e4nv fp8e5", 64, 32, 128, 128, 128, {"LOAD": "16x256b"}),
    ("fp8_e5m2_128", "fp8e5", 128, 64, 128, 128, 128, {}),
    ("fp8_e5m2", "fp8e5", 128, 256, 64, 64, 64, {"LOAD": "16x128b"}),
)  # fmt: skip


def sources(arch: int) -> Iterator[Source]:
    """All kernels."""
    for family in (_elementwise, _products, _scaled, _gluon, _gluon_pairs):
        yield from family(arch)


def main() -> None:
    """Compiles those whose names have one of the words given, or all, and records them."""
    chosen = sys.argv[1:]
    made = []
    for arch in (90, 100):
        for source in sources(arch):
            if chosen and not any(word in source.name for word in chosen):
                continue
            made.append(compiled(source, arch))
            print(f"{made[-1].name}: {len(made[-1].ptx.splitlines())} lines", flush=True)
    for language in ("triton", "gluon"):
        of_it = [kernel for kernel in made if kernel.name.startswith(language)]
        record.write(language, of_it, some=bool(chosen))


if __name__ == "__main__":
    main()
