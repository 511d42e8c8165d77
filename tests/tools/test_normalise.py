"""The normaliser of the snapshots: what a rename changes is invisible, what a kernel does is
seen.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tools.snapshot import normalise
from tools.snapshot.compare import differences


@tp.kernel()
def first(ctx: tp.Context, values: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
    tiles = ctx.smem((1, 32), values.dtype, count=2, swizzle=0, name="tiles")
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 2, name="ring")

    @ctx.role("load", warps=1)
    def load() -> None:
        for i in ctx.range(4):
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(tiles.tile_bytes)
                ctx.tma_load(values, (i, 0), tiles[stage.index()], stage.mbar())

    @ctx.role("store", warps=1)
    def store() -> None:
        for i in ctx.range(4):
            with ring.consume() as stage:
                ctx.store(out[i, ctx.lane], ctx.load(tiles[stage.index()][0, ctx.lane]))
                ctx.syncwarp()
                with ctx.elect_one():
                    stage.mbar().arrive()


@tp.kernel()
def second(
    ctx: tp.Context, source: tp.GlobalTensor, result: tp.GlobalTensor, *, turns: int = 4
) -> None:
    slots = ctx.smem((1, 32), source.dtype, count=2, swizzle=0, name="slots")
    queue = tp.ProducerConsumerPipeline.allocate(ctx, 2, name="queue")

    @ctx.role("fetch", warps=1)
    def fetch() -> None:
        for turn in ctx.range(turns):
            with queue.produce() as at, ctx.elect_one():
                at.mbar().expect_bytes(slots.tile_bytes)
                ctx.tma_load(source, (turn, 0), slots[at.index()], at.mbar())

    @ctx.role("write", warps=1)
    def write() -> None:
        for row in ctx.range(turns):
            with queue.consume() as at:
                ctx.store(result[row, ctx.lane], ctx.load(slots[at.index()][0, ctx.lane]))
                ctx.syncwarp()
                with ctx.elect_one():
                    at.mbar().arrive()


def bound(kernel: tp.KernelFunction, **static: Any) -> tp.Program:
    given = np.zeros((4, 32), np.float32)
    return kernel.bind(tp.tensor_map(given, box=(1, 32), swizzle=0), given.copy(), **static)


def test_a_rename_of_everything_in_a_kernel_is_invisible() -> None:
    a, b = bound(first), bound(second)
    assert a.source() != b.source()
    assert normalise.cuda(a.source()) == normalise.cuda(b.source())
    assert normalise.ir(str(a)) == normalise.ir(str(b))


def test_a_changed_number_is_seen() -> None:
    a, b = bound(first), bound(second, turns=3)
    assert normalise.cuda(a.source()) != normalise.cuda(b.source())
    assert normalise.ir(str(a)) != normalise.ir(str(b))


@pytest.mark.slow
def test_every_literal_and_every_word_of_ptx_is_seen() -> None:
    """Each number, string and statement of a printed kernel, changed on its own."""
    source = bound(first).source()
    before = normalise.cuda(source)
    code = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), source)
    numbers = list(re.finditer(r"(?<![\w%.])\d+(?![\w.])", code))
    texts = list(re.finditer(r'"[^"\n]*[a-z]{3}[^"\n]*"', code))
    assert len(numbers) > 40
    assert len(texts) > 10
    for m in numbers:
        assert (
            normalise.cuda(f"{source[: m.start()]}{int(m[0]) + 1}{source[m.end() :]}") != before
        ), m
    for m in texts:
        assert normalise.cuda(f"{source[: m.end() - 1]}!{source[m.end() - 1 :]}") != before, m


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("elect_one() {", "elect_two() {"),
        ("// ", "// not "),
        ("bool elect_one", "bool\n    elect_one"),
    ],
)
def test_layout_and_comments_do_not_show(old: str, new: str) -> None:
    source = bound(first).source()
    assert old in source
    changed = (
        re.sub(r"\belect_one\b", "elect_two", source) if "two" in new else source.replace(old, new)
    )
    assert changed != source
    assert normalise.cuda(changed) == normalise.cuda(source)


def test_names_are_of_their_scopes() -> None:
    """One of two variables of the same name is renamed; swapping two that are in one scope is
    seen.
    """
    body = (
        "void f(int n) {{ for (int {0} = 0; {0} < n; ++{0}) g({0}); for (int {1} = 0; {1} < "
        "n; ++{1}) {{ g({1}); }} }}"
    )
    assert normalise.cuda(body.format("i", "i")) == normalise.cuda(body.format("i", "k"))
    pair = "void f(int a, int b) {{ g({0} - {1}); }}"
    assert normalise.cuda(pair.format("a", "b")) != normalise.cuda(pair.format("b", "a"))
    assert normalise.cuda("void f() { g(); h(); }") != normalise.cuda("void f() { g(); g(); }")
    lines = (
        "role r: warps 0..0\n"
        "    for {0} in range(0, 4, 1):\n"
        "        print a={0}\n"
        "    for {1} in range(0, 4, 1):\n"
        "        print a={1}\n"
    )
    assert normalise.ir(lines.format("i", "i")) == normalise.ir(lines.format("i", "k"))


def test_ops_are_seen_and_their_lines_are_not() -> None:
    text = str(bound(first))
    assert normalise.ir(re.sub(r"\.py:\d+", ".py:1", text)) == normalise.ir(text)
    for op, other in (
        ("mbar_wait", "mbar_arrive"),
        ("sync_warp", "wgmma_fence"),
        ("one of warp", "one of role"),
    ):
        assert op in text
        assert normalise.ir(text.replace(op, other, 1)) != normalise.ir(text)


def test_the_line_of_a_fault_is_compared_without_names() -> None:
    old = {"k": {"fault": "RaceError", "line": "ctx.store(tile[0], x)  # why"}}
    assert not differences(
        old, {"k": {"fault": "RaceError", "line": "ctx.store(slot[0], y)"}, "new": {}}
    )
    assert differences(old, {"k": {"fault": "RaceError", "line": "ctx.store(slot[1], y)"}})
    assert differences(old, {"k": {"fault": "DeadlockError", "line": "ctx.store(tile[0], x)"}})
    assert [after for _, _, after in differences(old, {})] == ["missing"]
