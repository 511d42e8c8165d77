"""How single things print: expressions, names, values in place, cursors, roles on warps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.build import LANE, Builder, binary
from tilepipe import cuda
from tilepipe.cuda.codegen.names import Names
from tilepipe.cuda.codegen.parameters import arguments
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Cast, Const, Expr, Select, Unary, const


def stored(value: Expr, b: Builder | None = None) -> str:
    """How a value prints where it is stored to out[0]."""
    b = b or Builder()
    out = b.tensor("out", value.dtype, rank=1)
    b.setup_done()
    with b.role("one", warps=1):
        b.store(b.element(out, 0), value)
    found = re.search(r"out_data\[0\] = (.*?);", cuda.source(b.finished()))
    assert found is not None
    return found[1]


B = Builder()
N, X = B.scalar("n"), B.scalar("x", dtypes.float32)
PARITY = binary("and", N, 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            binary("add", binary("mul", N, 3), binary("sub", N, binary("sub", N, 1))),
            "n * 3 + (n - (n - 1))",
        ),
        (binary("mul", binary("add", N, 1), N), "(n + 1) * n"),
        (binary("floordiv", N, 64), "n / 64"),
        (binary("mod", binary("sub", N, 5), 3), "floor_mod<i32>(n - 5, 3)"),
        (binary("floordiv", N, const(-3)), "floor_div<i32>(n, -3)"),
        (binary("shl", binary("add", N, 1), 2), "(n + 1) << 2"),
        (binary("and", binary("lt", N, 3), binary("eq", PARITY, 0)), "n < 3 && (n & 1) == 0"),
        (Unary(dtypes.boolean, op="not", a=binary("lt", N, 3)), "!(n < 3)"),
        (Select(dtypes.int32, cond=binary("lt", N, 3), a=N, b=const(7)), "n < 3 ? n : 7"),
        (binary("max", X, const(0.5)), "fmaxf(x, 0.5f)"),
        (
            Unary(dtypes.float32, op="exp2", a=binary("sub", X, const(float("-inf")))),
            "fast_exp2(x - __uint_as_float(0xff800000u))",
        ),
        (Cast(dtypes.int64, a=N), "static_cast<i64>(n)"),
        (Cast(dtypes.float32, a=const(3)), "3.0f"),
        (Const(dtypes.uint32, value=7), "7u"),
        (Cast(dtypes.boolean, a=N), "n != 0"),
    ],
)
def test_expressions(value: Expr, text: str) -> None:
    b = Builder()
    b.scalar("n"), b.scalar("x", dtypes.float32)
    assert stored(value, b).removeprefix("bf16_from(") == text


def test_narrow_floats_are_rounded_after_each_operation() -> None:
    b = Builder()
    h = Cast(dtypes.bfloat16, a=b.scalar("x", dtypes.float32))
    total = binary("add", h, binary("mul", h, h))
    assert (
        stored(total, b)
        == "bf16_from(round_bf16(round_bf16(x) + round_bf16(round_bf16(x) * round_bf16(x))))"
    )


def body(b: Builder) -> str:
    """The role functions and the kernel, without source-line comments and indentation."""
    text = cuda.source(b.finished())
    text = re.sub(r" *// [\w.]+:\d+$", "", text[text.index("// ---- roles") :], flags=re.MULTILINE)
    return "\n".join(line.strip() for line in text.splitlines())


def test_names_are_unique_and_legal() -> None:
    names = Names(reserved=frozenset({"wait"}))
    wanted = ["inputs.full", "inputs_full", "wait", "for", "2d", "a b", "smem"]
    assert [names.of(object(), w) for w in wanted] == [
        "inputs_full",
        "inputs_full_1",
        "wait_1",
        "for_1",
        "_2d",
        "a_b",
        "smem_1",
    ]
    inner = Names(names)
    assert inner.of(object(), "a_b") == "a_b_1"


def test_a_role_may_be_called_like_a_wrapper() -> None:
    b = Builder()
    bar = b.barriers("wait")
    b.setup_done()
    with b.role("try_wait", warps=1):
        b.wait(b.bar(bar), 0)
    text = body(b)
    assert "void try_wait_1()" in text
    assert "wait(wait_1(), 0);" in text
    assert cuda.compile(b.kernel).data


def test_a_value_used_once_is_printed_in_place_and_one_used_in_a_loop_is_not() -> None:
    b = Builder()
    out, n = b.tensor("out", dtypes.int32, rank=1), b.scalar("n")
    b.setup_done()
    with b.role("one", warps=1):
        once, repeated = b.let(binary("mul", n, 5)), b.let(binary("mul", n, 7))
        with b.loop(once) as i:
            b.store(b.element(out, i), repeated)
    text = body(b)
    assert "const i32 v2 = n * 7;" in text
    assert re.search(r"for \(i32 i3 = 0; i3 < n \* 5; \+\+i3\)", text)


def test_a_cursor_is_read_in_place_until_it_steps() -> None:
    b = Builder()
    bars = b.barriers("bars", 3)
    b.setup_done()
    with b.role("one", warps=1):
        ring = b.cursor(3, -1)
        stage, phase = b.at(ring)
        b.wait(b.bar(bars, stage), phase)
        b.step(ring)
        stage, phase = b.at(ring)
        b.step(ring)
        b.wait(b.bar(bars, stage), phase)
    text = body(b)
    assert "u32 cursor1_phase = 1;" in text
    assert "wait(bars(cursor1_stage), cursor1_phase);" in text
    assert "const i32 stage4 = cursor1_stage;\nconst u32 phase5 = cursor1_phase;" in text
    assert "wait(bars(stage4), phase5);" in text


def test_a_value_of_a_cursor_is_not_moved_past_its_step() -> None:
    b = Builder()
    out = b.tensor("out", dtypes.int32, rank=1)
    b.setup_done()
    with b.role("one", warps=1):
        ring = b.cursor(3)
        stage, _ = b.at(ring)
        later = b.let(binary("mul", stage, 2))
        b.step(ring)
        b.store(b.element(out, 0), later)
    text = body(b)
    assert (
        text.index("const i32 v4 = cursor1_stage * 2;")
        < text.index("if (++cursor1_stage == 3) {")
        < text.index("= v4;")
    )


def test_a_variable_is_read_in_place_until_it_is_set() -> None:
    b = Builder()
    out, n = b.tensor("out", dtypes.int32, rank=1), b.scalar("n")
    b.setup_done()
    with b.role("one", warps=1):
        v = b.var(0)
        before = b.read(v)
        copy = b.let(before)
        with b.loop(n):
            b.do(ops.Assign, v, binary("add", b.read(v), 1))
        b.store(b.element(out, 0), binary("sub", b.read(v), copy))
    text = body(b)
    assert "var1 = var1 + 1;" in text
    assert "const i32 v3 = var1;" in text
    assert "out_data[0] = var1 - v3;" in text


def test_a_loop_bound_that_the_body_changes_is_taken_once() -> None:
    b = Builder()
    n = b.scalar("n")
    b.setup_done()
    with b.role("one", warps=1):
        v = b.var(n)
        with b.loop(b.read(v)):
            b.do(ops.Assign, v, const(0))
    text = body(b)
    assert "const i32 r2 = var1;" in text
    assert "i3 < r2;" in text


def test_set_up_values_become_parameters_of_the_roles_that_read_them() -> None:
    b = Builder()
    out, n = b.tensor("out", dtypes.int32, rank=1), b.scalar("n")
    twice = b.let(binary("mul", n, 2))
    b.setup_done()
    for name in ("first", "second"):
        with b.role(name, warps=1):
            b.store(b.element(out, 0), twice)
    text = body(b)
    assert "void first(i32* out_data, i32 v1) {" in text
    assert "const i32 v1 = n * 2;" in text
    assert "first(out_data, v1);" in text


def test_arguments_are_only_what_the_kernel_uses() -> None:
    b = Builder()
    a = b.tensor("a", box=(8, 64))
    c = b.tensor("c", dtypes.float32, rank=3, order="col")
    b.scalar("unused")
    tile, bar = b.smem("tile", 8, 64), b.barriers("bar")
    b.setup_done()
    with b.role("one", warps=1):
        with b.elect():
            b.load_tile(a, (b.shape(c, 0), 0), b.tile(tile), b.bar(bar))
        b.store(b.element(c, 1, 2, LANE), const(0.0))
    kernel = b.finished()
    found = [x.name for x in arguments(kernel)]
    assert found == ["a", "c_data", "c_stride_0", "c_stride_2", "c_shape_0"]
    assert "c_data[1 * c_stride_0 + 2 + lane * c_stride_2] = 0.0f;" in cuda.source(kernel)


def test_roles_that_share_a_warpgroup_share_its_registers_and_padding_warps_leave() -> None:
    b = Builder()
    b.setup_done()
    for name, warps, groups, registers in (
        ("mma", 0, 1, 200),
        ("load", 1, 0, 24),
        ("store", 2, 0, 24),
    ):
        with b.role(name, warps=warps, warpgroups=groups, registers=registers):
            b.do(ops.SyncWarp)
    text = body(b)
    text = text[text.index("__syncthreads();") :]
    assert text[text.index("grid_dependency_wait();") :].split("\n", 1)[1].replace(
        "\n", " "
    ).strip() == (
        "if (warp < 4) { setmaxnreg_dec<200>(); mma(); } else { setmaxnreg_dec<24>();"
        " if (warp == 4) { load(); } else if (warp < 7) { store(); } } }"
    )


@tp.kernel()
def early_load(ctx: tp.Context, x: Any, y: Any, *, early: bool) -> None:
    """y = x[0]; `early`: which set-up code loads."""
    value = ctx.let(ctx.load(x[0]), "value") if early else None
    ready = tp.SharedMemBarrier.allocate(ctx, 1, "ready")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            ready.arrive()
        ready.wait(0)
        ctx.store(y[ctx.lane], ctx.load(x[0]) if value is None else value)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    "build", [{}, {"debug": True}, {"perturb": 1}, {"debug": True, "perturb": 1}], ids=str
)
def test_global_memory_is_touched_after_the_kernel_before(
    early: bool, build: dict[str, Any]
) -> None:
    """Launches overlap, so all that stands before the wait must be the CTA's own; that is all of
    set-up, if it loads nothing.
    """
    program = early_load.bind(np.zeros(4, np.float32), np.zeros(32, np.float32), early=early)
    text = cuda.source(program.kernel, **build)
    entry = text[text.index('extern "C" __global__') :]
    assert entry.count("grid_dependency_wait();") == 1
    before, after = entry.split("grid_dependency_wait();")
    assert "_data[" not in before
    assert ("mbarrier_init" in before) is not early
    assert ("x_data[0]" in after) is early
    assert after.index("one(") > after.find("x_data[0]")


def test_a_swizzled_tile_that_is_not_aligned_is_refused() -> None:
    b = Builder()
    odd = b.smem("odd", 4, 64, 2, swizzle=128)
    b.setup_done()
    with b.role("one", warps=1):
        b.store(b.element(b.tile(odd), 0, LANE), const(0.0, dtypes.bfloat16))
    with pytest.raises(
        CompileError, match=r"tiles of 'odd' lie at 0 \+ 512 · i bytes.*multiple of 1024"
    ):
        cuda.source(b.finished())


def test_print_says_it_once_a_warpgroup_and_escapes_percent() -> None:
    b = Builder()
    n = b.scalar("n")
    b.setup_done()
    with b.role("math", warpgroups=1):
        b.do(ops.Print, "100% of {} {}", (n, LANE))
        b.do(ops.Print, "n {}", (n,))
    text = body(b)
    assert 'printf("100%% of %d %d\\n", n, lane);' in text
    assert 'if (warp_in_group == 0 && lane == 0) {\nprintf("n %d\\n", n);' in text
