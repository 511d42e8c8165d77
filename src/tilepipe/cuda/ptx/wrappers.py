"""The PTX wrappers of the printed code: the device functions of this package's .cuh files, and
families of functions that differ in a number or a type.

A printed kernel contains the wrappers it uses and includes nothing, so NVRTC or nvcc compiles it on
its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import get_args

from tilepipe.ir.ops import Reduction

FUNCTION = "__device__ __forceinline__"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A device function or constant of the printed file: its name, its text with the comment above
    it, and the names of the snippets it calls.
    """

    name: str
    code: str
    needs: tuple[str, ...] = ()


def _read(file: str) -> Iterator[tuple[str, str]]:
    """The (name, text) of each function of a .cuh file of this package. An empty line ends a
    function.
    """
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    for block in text.split("\n\n"):
        found = re.search(rf"^{FUNCTION} .*?(\w+)\(", block, re.MULTILINE)
        if found is not None:
            yield found[1], block.strip("\n")


def _for_pairs(functions: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The variants of functions for a pair of CTAs, such as `tmem_alloc_pair`."""
    for name, code in functions.items():
        if "cta_group::1" in code:
            yield (
                f"{name}_pair",
                code.replace("cta_group::1", "cta_group::2").replace(f" {name}(", f" {name}_pair("),
            )


def wrapped(items: list[str], width: int = 8) -> list[str]:
    """Lines of comma-separated items, `width` to a line."""
    rows = [", ".join(items[i : i + width]) for i in range(0, len(items), width)]
    return [f"{row}," for row in rows[:-1]] + rows[-1:]


def _to_integer() -> Iterator[tuple[str, str]]:
    """Conversions from floating-point numbers to integers, such as `i32_from_f32`."""
    registers = {8: ("r", "i32"), 32: ("r", "i32"), 64: ("l", "i64")}
    for (source, c_type, letter), kind, bits in product(
        (("f32", "float", "f"), ("f64", "double", "d")), "iu", registers
    ):
        name, ptx = f"{kind}{bits}_from_{source}", f"{'s' if kind == 'i' else 'u'}{bits}"
        constraint, register = registers[bits]
        # cvt turns NaN into 0 unless the source or the result has 64 bits: then it gives the
        # lowest number, or 2**63 (PTX ISA, cvt). NaN is to be 0 in all cases.
        result = "bits" if source == "f32" and bits < 64 else "x == x ? bits : 0"
        yield (
            name,
            f"""// cvt.rzi: truncated, clamped to the integer's range; NaN is 0
{FUNCTION} {kind}{bits} {name}({c_type} x) {{
    {register} bits;
    asm("cvt.rzi.{ptx}.{source} %0, %1;" : "={constraint}"(bits) : "{letter}"(x));
    return static_cast<{kind}{bits}>({result});
}}""",
        )


def _tma(rank: int) -> Iterator[tuple[str, str]]:
    """The TMA copies of a box between shared memory and a tensor of that rank in global memory."""
    axes = range(rank)
    coords, inputs = ", ".join(f"i32 c{i}" for i in axes), ", ".join(f'"r"(c{i})' for i in axes)
    comment = "// cp.async.bulk.tensor; c0 is the innermost coordinate"
    load = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    at = "{" + ", ".join(f"%{i + 3}" for i in axes) + "}"
    for (group, suffix, owner), hinted in product(
        (
            ("", "", ""),
            (".cta_group::2", "_pair", "; `bar` may be the other CTA's of the pair"),
        ),
        (False, True),
    ):
        hint, suffix = ".L2::cache_hint" * hinted, suffix + "_hinted" * hinted
        given, policy = "u64 policy, " * hinted, ', "l"(policy)' * hinted
        name = f"tma_load{suffix}_{rank}d"
        yield (
            name,
            f"""{comment}{owner}
{FUNCTION} void {name}(u32 dst, const TensorMap& map, u32 bar, {given}{coords}) {{
    asm volatile("{load}{group}{hint} [%0], [%1, {at}], [%2]{f", %{rank + 3}" * hinted};"
                 ::"r"(dst), "l"(&map), "r"(bar), {inputs}{policy} : "memory");
}}""",
        )
        name = f"tma_load_multicast{suffix}_{rank}d"
        yield (
            name,
            f"""{comment}; to the same address in each CTA of the mask{owner}
{FUNCTION} void {name}(u32 dst, const TensorMap& map, u32 bar, u16 ctas, {given}{coords}) {{
    asm volatile("{load}.multicast::cluster{group}{hint}"
                 " [%0], [%1, {at}], [%2], %{rank + 3}{f", %{rank + 4}" * hinted};"
                 ::"r"(dst), "l"(&map), "r"(bar), {inputs}, "h"(ctas){policy} : "memory");
}}""",
        )
    at = "{" + ", ".join(f"%{i + 2}" for i in axes) + "}"
    name = f"tma_store_{rank}d"
    yield (
        name,
        f"""{comment}
{FUNCTION} void {name}(const TensorMap& map, u32 src, {coords}) {{
    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%1, {at}], [%0];"
                 ::"r"(src), "l"(&map), {inputs} : "memory");
}}""",
    )
    reduce, form = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta", "tile.bulk_group"
    for operation in get_args(Reduction):
        name = f"tma_reduce_{operation}_{rank}d"
        yield (
            name,
            f"""// cp.reduce.async.bulk.tensor; c0 is the innermost coordinate
{FUNCTION} void {name}(const TensorMap& map, u32 src, {coords}) {{
    asm volatile("{reduce}.{operation}.{form} [%1, {at}], [%0];"
                 ::"r"(src), "l"(&map), {inputs} : "memory");
}}""",
        )


# C++ type -> (PTX type of a load, PTX type of a store, asm constraint, C++ type of the register).
# PTX has no registers of 8 bits, so bytes pass through 32-bit ones.
_ACCESS = {
    "i8": ("s8", "u8", "r", "i32"),
    "u8": ("u8", "u8", "r", "u32"),
    "u16": ("u16", "u16", "h", "u16"),
    "i32": ("s32", "u32", "r", "i32"),
    "u32": ("u32", "u32", "r", "u32"),
    "i64": ("s64", "u64", "l", "i64"),
    "u64": ("u64", "u64", "l", "u64"),
    "float": ("f32", "f32", "f", "float"),
    "double": ("f64", "f64", "d", "double"),
}


def _access(c_type: str) -> Iterator[tuple[str, str]]:
    """Ordinary loads and stores of this CTA's shared memory and (`_remote`) of another CTA's."""
    load, store, constraint, register = _ACCESS[c_type]
    for space, suffix in (("shared::cta", ""), ("shared::cluster", "_remote")):
        name = f"load_{c_type}{suffix}"
        yield (
            name,
            f"""// ld.{space}
{FUNCTION} {c_type} {name}(u32 address) {{
    {register} x;
    asm volatile("ld.{space}.{load} %0, [%1];" : "={constraint}"(x) : "r"(address) : "memory");
    return x;
}}""",
        )
        name = f"store_{c_type}{suffix}"
        yield (
            name,
            f"""// st.{space}
{FUNCTION} void {name}(u32 address, {register} x) {{
    asm volatile("st.{space}.{store} [%0], %1;" ::"r"(address), "{constraint}"(x) : "memory");
}}""",
        )


def _scan(c_type: str) -> Iterator[tuple[str, str]]:
    """The steps of a scan over the lanes of a warp. The predicate of shfl.sync says whether there
    is a lane to read: the compiler is given no condition of the lane, by which it may divide code
    around the shuffles.

    `bounds`: 0x100 · (32 - n), where each n lanes, a power of two, are a part of their own
    (PTX ISA, shfl.sync: operand c).
    """
    ptx, constraint, zero = {
        "float": ("f32", "f", "0f00000000"),
        "i32": ("s32", "r", "0"),
        "u32": ("u32", "r", "0"),
    }[c_type]
    name = f"scan_step_{c_type}"
    yield (
        name,
        f"""// shfl.sync.up: x + what the lane `step` before this one has, if it is in the same part
{FUNCTION} {c_type} {name}({c_type} x, u32 step, u32 bounds) {{
    {c_type} sum;
    asm volatile("{{ .reg .pred p; .reg .{ptx} y; shfl.sync.up.b32 y|p, %1, %2, %3, 0xffffffff;"
                 " @p add.{ptx} y, y, %1; mov.{ptx} %0, y; }}"
                 : "={constraint}"(sum) : "{constraint}"(x), "r"(step), "r"(bounds));
    return sum;
}}""",
    )
    name = f"lane_before_{c_type}"
    yield (
        name,
        f"""// shfl.sync.up: what the lane before this one has, if it is in the same part; else 0
{FUNCTION} {c_type} {name}({c_type} x, u32 bounds) {{
    {c_type} before;
    asm volatile("{{ .reg .pred p; .reg .{ptx} y; shfl.sync.up.b32 y|p, %1, 1, %2, 0xffffffff;"
                 " selp.{ptx} %0, y, {zero}, p; }}"
                 : "={constraint}"(before) : "{constraint}"(x), "r"(bounds));
    return before;
}}""",
    )


def _all() -> dict[str, Snippet]:
    blackwell = dict(_read("tcgen05.cuh"))
    scans = map(_scan, ("float", "i32", "u32"))
    families = *map(_tma, range(1, 6)), _to_integer(), *map(_access, _ACCESS), *scans
    files = map(_read, ("data.cuh", "grid.cuh", "debug.cuh", "stamps.cuh"))
    pairs = blackwell.items(), _for_pairs(blackwell)
    code = dict(chain(_read("ptx.cuh"), *families, *pairs, *files))
    calls = {name: dict.fromkeys(re.findall(r"\b(\w+)\(", text)) for name, text in code.items()}
    return {
        name: Snippet(name, text, tuple(c for c in calls[name] if c in code and c != name))
        for name, text in code.items()
    }


SNIPPETS = _all()  # in the order of printing: each wrapper after those it calls
