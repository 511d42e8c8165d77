"""One execution stands for all: what runs how often, what is the same twice, and where errors
point.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, in_role, of_kind, refused, role_from_text
from tilepipe.ir import ops
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig


def gemm_program(m: int = 256, n: int = 256, k: int = 256, **settings: Any) -> tp.Program:
    a, b, c = (
        np.zeros((m, k), tp.bfloat16.numpy),
        np.zeros((n, k), tp.bfloat16.numpy),
        np.zeros((m, n), np.float32),
    )
    return gemm.bind(a, b, c, GemmConfig(**settings))


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_body_is_executed_once(trips: int, capsys: pytest.CaptureFixture[str]) -> None:
    def body(ctx: tp.Context, out: Any) -> None:
        for i in ctx.range(trips):
            print("executed")
            with ctx.elect_one():
                ctx.store(out[i], i + 1)

    array = np.zeros(8, np.int32)
    program = in_role(body, array)
    assert capsys.readouterr().out == "executed\n"
    program.run()
    assert array.tolist() == [i + 1 if i < trips else 0 for i in range(8)]


def test_a_python_loop_unrolls_and_a_traced_one_does_not() -> None:
    def body(ctx: tp.Context, out: Any) -> None:
        for j in range(3):
            ctx.print("unrolled {}", j)
        for i in ctx.range(3):
            ctx.print("traced {}", i)

    program = in_role(body)
    assert len(of_kind(program, ops.Print)) == 4
    assert len(of_kind(program, ops.For)) == 1
    assert set(program.run().printed) == {
        f"{how} {i}" for how in ("unrolled", "traced") for i in range(3)
    }


def test_one_trace_for_one_static_part() -> None:
    calls = []

    @tp.kernel()
    def k(ctx: tp.Context, x: Any, n: Any, *, mode: str = "a") -> None:
        calls.append(mode)
        ctx.role("one", warps=1)(lambda: None)

    first = k.bind(np.zeros(4, np.int32), 1)
    assert k.bind(np.zeros(400, np.int32), 7).kernel is first.kernel
    assert calls == ["a"]
    assert k.bind(np.zeros(4, np.float32), 1).kernel is not first.kernel
    assert k.bind(np.zeros((4, 4), np.int32), 1).kernel is not first.kernel
    assert k.bind(np.zeros(4, np.int32), 1.0).kernel is not first.kernel
    assert k.bind(np.zeros(4, np.int32), 1, mode="b").kernel is not first.kernel
    assert calls == ["a", "a", "a", "a", "b"]


def test_unhashable_static_arguments_are_traced_each_time() -> None:
    @tp.kernel()
    def k(ctx: tp.Context, *, order: list[int]) -> None:
        @ctx.role("one", warps=len(order))
        def one() -> None:
            return None

    assert k.bind(order=[1, 2]).kernel.roles[0].warps == 2
    assert k.bind(order=[1]).kernel.roles[0].warps == 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"cluster": 2, "bn": 256, "bm": 128}, {"consumers": 1, "bm": 64, "k_group_size": 2}],
)
def test_the_same_text_twice(settings: dict[str, Any]) -> None:
    first = gemm_program(**settings)
    gemm.gemm._traces.clear()
    second = gemm_program(**settings)
    assert first.kernel is not second.kernel
    assert str(first) == str(second)


def test_size_does_not_depend_on_shapes() -> None:
    small = gemm_program(128, 128, 64)
    gemm.gemm._traces.clear()
    large = gemm_program(4096, 2048, 1024)
    assert str(small) == str(large)


@pytest.mark.slow
def test_binding_in_eight_threads() -> None:
    """Each thread traces kernels of its own; none sees another's names, cursors or blocks."""
    expected = [str(gemm_program(stages=stages)) for stages in (2, 3, 4, 5)]

    def work(i: int) -> list[str]:
        texts = []
        for stages in (2, 3, 4, 5)[i % 4 :] + (2, 3, 4, 5)[: i % 4]:
            gemm.gemm._traces.clear()
            texts.append(str(gemm_program(stages=stages)))
        return texts[4 - i % 4 :] + texts[: 4 - i % 4]

    with ThreadPoolExecutor(8) as pool:
        assert all(texts == expected for texts in pool.map(work, range(8)))


def test_printed_text_has_source_lines() -> None:
    text = str(gemm_program())
    assert "kernel gemm: 384 threads" in text
    assert "role mma: warps 0..7, 232 registers" in text
    assert "role load: warps 8..8, 40 registers" in text
    assert "smem" in text
    assert "inputs.full: 4 mbarriers, count 1" in text
    assert "inputs.empty: 4 mbarriers, count 2" in text
    assert all("# multicast.py:" in line for line in text.splitlines() if "tma_load" in line)
    assert all("# sm90_gemm.py:" in line for line in text.splitlines() if "wgmma" in line)


def test_notebook_cells_have_source_lines() -> None:
    with refused(tp.TraceError, "<cell ", "if ctx.lane > 3:", "ctx.when"):
        role_from_text("if ctx.lane > 3:\n    pass")
    program = role_from_text("for i in ctx.range(3):\n    ctx.print('{}', i)")
    (loop,) = of_kind(program, ops.For)
    assert loop.loc.source == "for i in ctx.range(3):"
    assert loop.loc.file.startswith("<cell ")


@pytest.mark.parametrize(
    "where",
    [
        "raise KeyError('mine')",
        "for i in ctx.range(3):\n    raise KeyError('mine')",
        "with ctx.when(ctx.block_id == 0):\n    raise KeyError('mine')",
        (
            "with ctx.elect_one():\n"
            "    for i in ctx.range(3):\n"
            "        with ctx.when(i > 1):\n"
            "            raise KeyError('mine')"
        ),
    ],
)
def test_exceptions_of_the_body_pass_through(where: str) -> None:
    with pytest.raises(KeyError, match="mine") as caught:
        role_from_text(where)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_exceptions_pass_through_held_stages() -> None:
    """A leak that the exception causes is not reported instead of it."""
    text = "with pipe.produce() as stage:\n    raise KeyError('mine')"
    with pytest.raises(KeyError, match="mine"):
        role_from_text(text, before="pipe = tp.ProducerConsumerPipeline.allocate(ctx, 2)")


def test_a_nested_in_place_update_gets_a_note() -> None:
    with pytest.raises(UnboundLocalError) as caught:
        role_from_text("acc = ctx.var(0)\ndef helper():\n    acc += 1\nhelper()")
    assert any("nonlocal" in note for note in caught.value.__notes__)


def test_a_kernel_needs_a_role_and_returns_nothing() -> None:
    with refused(tp.TraceError, "'k' has no role"):
        from_text("pass").bind(np.zeros(4, np.int32))
    with refused(tp.TraceError, "role 'one' returns 3"):
        role_from_text("return 3")
    with refused(tp.TraceError, "kernel 'k' returns 'x'"):
        from_text("ctx.role('one', warps=1)(lambda: None)\nreturn 'x'").bind(np.zeros(4, np.int32))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ctx.role('a')(lambda: None)", ("role 'a'", "either warps= or warpgroups=")),
        ("ctx.role('a', warps=1, warpgroups=1)(lambda: None)", ("role 'a'", "either")),
        ("ctx.role('a', warps=0)(lambda: None)", ("role 'a'", "at least one warp, got 0")),
        (
            "ctx.role('a', warps=1)(lambda: ctx.role('b', warps=1))",
            ("'b' is declared inside role 'a'", "beside"),
        ),
        (
            "ctx.role('a', warps=1)(lambda: None)\nctx.role('a', warps=1)(lambda: None)",
            ("two roles named 'a'",),
        ),
        ("ctx.role('a', warps=True)(lambda: None)", ("role 'a'", "at least one warp, got True")),
        ("ctx.lane", ("belongs in a role",)),
        ("for i in ctx.range(2): pass", ("belongs in a role",)),
        ("ctx.var(0)", ("belongs in a role",)),
        ("tp.PipelineState(ctx, 2).step()", ("set-up code", "belongs to a role")),
        (
            "ctx.role('a', warps=1)(lambda: ctx.smem((8, 64), 'float32'))",
            ("allocated in set-up code",),
        ),
        (
            "ctx.role('a', warps=1)(lambda: tp.SMemArray(ctx, 'int32', 4))",
            ("allocated in set-up code",),
        ),
    ],
)
def test_set_up_and_roles(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        from_text(text).bind(np.zeros(4, np.int32))
