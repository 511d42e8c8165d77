"""Calls of wrappers in printed roles: each operand in its place. What a wrapper does with it is
`test_wrappers`' to check.
"""

from __future__ import annotations

import re

import pytest

from tests.support.build import Builder
from tests.support.cuda.grid_kernels import launch_control
from tilepipe import cuda
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import const
from tilepipe.ir.memory import Tmem


def calls(b: Builder, arch: str = "sm_100a") -> list[str]:
    """The calls of a kernel's role 'one', each without spaces."""
    code = cuda.source(b.finished(), arch)
    body = re.sub(r" *//.*", "", code[code.index("void one(") : code.index('extern "C"')])
    return [
        line.strip().replace(" ", "")
        for line in body.splitlines()
        if re.match(r" +[\w<>]+\(.*\);", line)
    ]


def test_barriers() -> None:
    b = Builder(cluster=2)
    bars, named = b.barriers("bars", 4, init=False), b.named("meet", 96)
    n = b.scalar("n")
    b.setup_done()
    with b.role("one", warps=3):
        b.do(ops.MbarInit, b.bar(bars, 1), n, 1)
        b.arrive(b.bar(bars, 2))
        b.arrive(b.bar(bars, 2), 5)
        b.arrive(b.bar(bars, 3, 1), 7)
        b.expect(b.bar(bars, 1), n)
        b.expect(b.bar(bars, 1), 48, arrive=False)
        b.do(ops.MbarCompleteTx, b.bar(bars, 3), const(32))
        b.wait(b.bar(bars, 1), 1)
        b.do(ops.NamedSync, named)
        b.do(ops.NamedArrive, named)
        b.do(ops.MbarInval, b.bar(bars, 0))
    found = calls(b)
    wanted = [
        r"mbarrier_init\(bars\(1\),n\)",
        r"arrive\(bars\(2\)\)",
        r"arrive_n\(bars\(2\),5\)",
        r"arrive_remote\w*_n\(on_cta\(bars\(3\),1\),7\)",
        r"arrive_expect_tx\(bars\(1\),n\)",
        r"expect_tx\(bars\(1\),48\)",
        r"complete_tx\(bars\(3\),32\)",
        r"wait\w*\(bars\(1\),1\)",
        r"named_sync\(meet_barrier,96\)",
        r"named_arrive\(meet_barrier,96\)",
        r"mbarrier_inval\(bars\(0\)\)",
    ]
    assert len(found) == len(wanted)
    for line, pattern in zip(found, wanted, strict=True):
        assert re.fullmatch(pattern + ";", line), (line, pattern)


@pytest.mark.parametrize(("multicast", "suffix", "mask"), [(None, "", ""), (3, "_multicast", "3,")])
def test_copies(multicast: int | None, suffix: str, mask: str) -> None:
    """TMA copies take their coordinates innermost first."""
    b = Builder(cluster=2)
    a, tile = (
        b.tensor("a", rank=3, box=(1, 64, 64), swizzle=128),
        b.smem("tile", 64, 64, 3, swizzle=128),
    )
    x, y, z, bars = b.scalar("x"), b.scalar("y"), b.scalar("z"), b.barriers("bars", 2)
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.load_tile(a, (x, y, z), b.tile(tile, 2), b.bar(bars, 1), multicast)
        b.store_tile(a, (z, x, y), b.tile(tile, 1))
    assert calls(b) == [
        f"tma_load{suffix}_3d(tile(2),a,bars(1),{mask}z,y,x);",
        "tma_store_3d(a,tile(1),y,x,z);",
    ]


@pytest.mark.parametrize(("group", "suffix"), [(1, ""), (2, "_pair")])
def test_tensor_memory(group: int, suffix: str) -> None:
    b = Builder(cluster=2)
    b.kernel.cta_group = group
    word, scales, bars = (
        b.smem("word", 1, 1, 2, dtypes.uint32),
        b.smem("scales", 128, 16, 2, dtypes.uint8),
        b.barriers("bars", 2),
    )
    x = b.scalar("x", dtypes.uint32)
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.TmemAlloc, b.tile(word, 1), 128, group)
        b.do(ops.TmemRelinquish, group)
        with b.elect():
            b.do(ops.TmemCopy, Tmem(x, 128, 16, dtypes.uint8), b.tile(scales, 1), group)
            b.do(ops.Tcgen05Commit, b.bar(bars, 1), group, None)
            b.do(ops.Tcgen05Commit, b.bar(bars, 1), group, const(3))
        b.do(ops.TmemDealloc, x, 128, group)
    assert calls(b) == [
        f"tmem_alloc{suffix}(word(1),128);",
        f"tmem_relinquish{suffix}();",
        f"tmem_copy_128x128b{suffix}(x,scales_format|start);",
        f"tcgen05_commit{suffix}(bars(1));",
        f"tcgen05_commit_multicast{suffix}(bars(1),3);",
        f"tmem_dealloc{suffix}(x,128);",
    ]


def test_cluster_launch_control() -> None:
    """The response is written to the tile, and reported to the barrier."""
    code = cuda.source(launch_control(), "sm_100a").replace(" ", "")
    assert "clc_try_cancel(responses(),bars(0));" in code
    assert re.search(r"clc_try_cancel_multicast\(responses\(\)\+16,bars\(1\)\);", code)
    assert re.search(r"clc_first_cta\(responses\(\)\+16\);", code)


@pytest.mark.parametrize(("read", "suffix"), [(True, "_read"), (False, "")])
def test_waits_for_stores(read: bool, suffix: str) -> None:
    """`read`: until the tile has been read; otherwise until the stores have been made."""
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1), b.elect():
        b.do(ops.TmaStoreCommit)
        b.do(ops.TmaStoreWait, 3, read)
    assert calls(b, "sm_90a") == ["bulk_commit();", f"bulk_wait{suffix}<3>();"]


@pytest.mark.parametrize(("left", "right"), [("e4m3", "e5m2"), ("e5m2", "e4m3")])
def test_wgmma_of_two_types(left: str, right: str) -> None:
    """A's type first, in the name and in the instruction."""
    types = {"e4m3": dtypes.float8_e4m3, "e5m2": dtypes.float8_e5m2}
    b = Builder()
    one, other = (
        b.smem("a", 64, 128, 1, types[left], 128),
        b.smem("b", 32, 128, 1, types[right], 128),
    )
    b.setup_done()
    with b.role("one", warpgroups=1):
        acc = b.fragment("acc", 64, 32)
        b.do(ops.Wgmma, acc, b.tile(one), b.tile(other), const(True))
    code = cuda.source(b.finished(), "sm_90a")
    assert re.search(
        rf"wgmma_m64n32k32_{left}_{right}\(acc\[0\], a_format \| .*, b_format \| .*\);", code
    )
    assert f"wgmma.mma_async.sync.aligned.m64n32k32.f32.{left}.{right} " in code
