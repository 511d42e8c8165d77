"""Conversions and shifts as they are printed: nothing that C++ leaves undefined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.numbers import CASES, UNIFORM
from tilepipe import cuda


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", [*CASES, *UNIFORM][::29], ids=lambda case: case.name)
def test_compiles_without_a_warning(case: Any) -> None:
    compiled = cuda.compile(case.make(np.random.default_rng(0))[0].kernel)
    assert "warning" not in compiled.log


def printed(body: Callable[[tp.Context, Any], Any], dtype: str = "uint32") -> str:
    """The value that is stored for x of a dtype, as C++."""

    @tp.kernel()
    def one_value(ctx: tp.Context, x: Any, out: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.store(out[ctx.lane], body(ctx, ctx.load(x[ctx.lane])))

    x = np.zeros(32, np.dtype(dtype))
    program = one_value.bind(x, np.zeros(32, np.int64))
    assert "warning" not in cuda.compile(program.kernel).log
    line = next(line for line in program.source().splitlines() if "out_data[lane] = " in line)
    return line.split("out_data[lane] = ")[1].split(";")[0]


SHIFTS: dict[str, tuple[Callable[[tp.Context, Any], Any], str]] = {
    "by a constant": (lambda ctx, x: x << 5, "v << 5u"),
    "by a masked amount": (lambda ctx, x: x << (x & 31), "v << (v & 31u)"),
    "by the lane": (lambda ctx, x: x << ctx.lane.to("uint32"), "v << static_cast<u32>(lane)"),
    "beyond the width": (lambda ctx, x: x << 40, "shift_left<u32>(v, 40u)"),
    "by anything": (lambda ctx, x: x >> x, "shift_right<u32>(v, v)"),
}


@pytest.mark.parametrize("name", SHIFTS)
def test_only_shifts_that_may_leave_the_width_are_guarded(name: str) -> None:
    body, want = SHIFTS[name]
    assert want in printed(body)


MASKED: dict[str, tuple[str, Callable[[tp.Context, Any], Any], str]] = {
    "two constants": ("uint32", lambda ctx, x: x & 15 | 0x4300, "and_or(v, 15u, 17152u)"),
    "of signed bits": (
        "int32",
        lambda ctx, x: x >> 4 & 15 | 0x4300,
        "static_cast<i32>(and_or(v >> 4, 15, 17152))",
    ),
    "one constant": ("uint32", lambda ctx, x: x & x >> 1 | 0x4300, "(v & (v >> 1u)) | 17152u"),
    "of 64 bits": ("uint64", lambda ctx, x: x & 15 | 0x4300, "(v & 15ull) | 17152ull"),
}


@pytest.mark.parametrize("name", MASKED)
def test_bits_are_masked_and_set_by_one_instruction(name: str) -> None:
    dtype, body, want = MASKED[name]
    assert want in printed(body, dtype)


@pytest.mark.parametrize(
    ("source", "target", "want"),
    [
        ("float32", "int32", "i32_from_f32("),
        ("float32", "uint8", "u8_from_f32("),
        ("float64", "int64", "i64_from_f64("),
        ("float16", "uint32", "u32_from_f32("),
        ("int32", "uint32", "static_cast<u32>("),
    ],
)
def test_fractions_are_converted_by_ptx(source: str, target: str, want: str) -> None:
    assert want in printed(lambda ctx, x: x.to(target), source)


@pytest.mark.parametrize(
    ("power", "want"),
    [
        (2, {"mul": 1}),
        (12, {"mul": 4}),
        (-3, {"mul": 2, "rcp": 1}),
        (-1, {"rcp": 1}),
        (0.5, {"sqrt": 1}),
        (-0.5, {"rsqrt": 1}),
        (1.5, {"lg2": 1, "mul": 1, "ex2": 1}),
    ],
)
def test_a_power_is_these_instructions(power: float, want: dict[str, int]) -> None:
    @tp.kernel()
    def raised(ctx: tp.Context, x: Any, out: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.store(out[ctx.lane], ctx.load(x[ctx.lane]) ** power)

    x = np.zeros(32, np.float32)
    ptx = cuda.compile(raised.bind(x, x.copy()).kernel, emit="ptx").data.decode()
    found = Counter(re.findall(r"^\s*(\w+)\.[\w.]*f32\s", ptx, re.MULTILINE))
    assert {name: found[name] for name in found if name in ARITHMETIC} == want


ARITHMETIC = ("mul", "fma", "div", "rcp", "sqrt", "rsqrt", "lg2", "ex2")


def test_squares_of_16_bits_are_taken_in_pairs() -> None:
    @tp.kernel()
    def squares(ctx: tp.Context, x: Any) -> None:
        @ctx.role("one", warpgroups=1)
        def one() -> None:
            f = ctx.load_global(x, (0, 0), (64, 8))
            f.set((f - 1) ** 2)
            ctx.store_global(x, (0, 0), f)

    program = squares.bind(np.zeros((64, 8), np.float16))
    assert "= mul_f16x2(sub_f16x2(" in program.source()
