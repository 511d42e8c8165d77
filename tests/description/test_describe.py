"""What a description says of small kernels, exactly, and that all shipped kernels have one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilepipe as tp
from tests.timeline import kernels
from tests.timeline.kernels import copying
from tilepipe.description import Action, Argument, Barrier, Memory, Ring, Role


def at(text: str) -> str:
    """The line of the kernel that has a text."""
    assert kernels.__file__ is not None
    with open(kernels.__file__, encoding="utf-8") as file:
        (line,) = [i for i, x in enumerate(file, 1) if text in x]
    return f"kernels.py:{line}"


def test_a_small_kernel() -> None:
    d = copying().describe()
    assert (d.name, d.grid, d.cluster, d.threads) == ("copy", 2, (1, 1, 1), 64)
    assert d.roles == (
        Role("load", False, 0, 1, 0, None, ("tma_load a",), at('ctx.role("load"')),
        Role("store", False, 1, 1, 0, None, ("tma_store out",), at('ctx.role("store"')),
    )
    full = (
        Action(0, "expects", False, (at("expect_bytes"),)),
        Action(0, "copies", False, (at("ctx.tma_load("),)),
        Action(1, "waits", False, (at("ring.consume_explicit()"),)),
    )
    empty = (
        Action(0, "waits", False, (at("ring.produce()"),)),
        Action(1, "arrives", False, (at("stage.mbar().arrive()"),)),
    )
    assert d.rings == (
        Ring(
            "ring", 1, Barrier("ring.full", 1, 512, 1, ("512",), ("a",), full),
            Barrier("ring.empty", 1, 520, 1, (), (), empty), ("tiles",), 512,
        ),
    )  # fmt: skip
    assert d.lone_barriers == []
    limit = 227 * 1024
    assert d.memory == (
        Memory("tiles", "tiles", 0, 512, "1 × 16×16 float16, row order, swizzle 32"),
        Memory("ring.full", "barriers", 512, 8, "1 mbarrier"),
        Memory("ring.empty", "barriers", 520, 8, "1 mbarrier"),
        Memory("", "free", 528, limit - 528, ""),
    )
    what = "2-d float16, row order, box 16×16, swizzle 32"
    assert d.arguments == (
        Argument("a", what, "32×32", "read"),
        Argument("out", what, "32×32", "written"),
    )
    assert d.launch == ("2 CTAs of 64 threads, 528 of 232,448 bytes of shared memory; sm_90a, H200")
    assert d.rings[0].full.needs == "1 arrival + 512 bytes of a"


def meeting() -> tp.Program:
    """Two CTAs of a cluster: warpgroups take turns, arrive on a barrier of both CTAs, and meet."""

    @tp.kernel(grid=2, cluster=2)
    def meet(ctx: tp.Context, out: tp.GlobalTensor, n: tp.Value) -> None:
        order = tp.OrderedBarrier(ctx, 2)
        done = tp.SMemArray(ctx, tp.SharedMemBarrier, 1, "done")
        done[0].init(512)

        @ctx.role("both", warpgroups=2, registers=40)
        def both() -> None:
            with order.turn(ctx.warpgroup_rank):
                for cta in range(2):
                    done[0].arrive_cluster(cta)
            done[0].wait(0)
            ctx.sync_role()
            ctx.cluster_arrive()
            ctx.cluster_wait()
            ctx.store(out[ctx.lane], n)

    return meet.bind(np.zeros(32, np.int32), 3)


def test_a_cluster_named_barriers_and_the_set_up() -> None:
    d = meeting().describe()
    setup, both = d.roles
    assert (setup.name, setup.setup, setup.threads) == ("set-up", True, "all 8 warps")
    assert (both.threads, both.registers) == ("2 warpgroups, warps 0..7", 40)
    assert both.does == ("store out",)
    order, done = d.barriers
    assert [(a.role, a.does) for a in order.actions] == [
        (0, "arrives"),
        (1, "waits"),
        (1, "arrives"),
    ]
    assert order.about == "2 barriers, 128 arrivals"
    assert [(a.role, a.does, a.far) for a in done.actions] == [
        (1, "arrives", True),
        (1, "waits", False),
    ]
    assert done.about == "barrier, 512 arrivals"
    role, cluster = d.named_barriers
    assert role.about == "hardware barrier 1, 256 threads"
    assert [(a.role, a.does) for a in role.actions] == [(1, "arrives"), (1, "waits")]
    assert cluster.about == "barrier of the cluster, 512 threads"
    assert [(a.role, a.does) for a in cluster.actions] == [(1, "arrives"), (1, "waits")]
    assert d.launch.startswith("2 CTAs of 256 threads in clusters of 2×1×1, 24 of ")
    assert [(x.name, x.value, x.use) for x in d.arguments] == [
        ("out", "32", "written"),
        ("n", "3", ""),
    ]


def test_a_reduction_uses_the_barrier_of_its_warps() -> None:
    @tp.kernel(grid=1)
    def summed(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
        @ctx.role("one", warpgroups=1)
        def one() -> None:
            ctx.store_global(out, (0,), ctx.load_global(a, (0, 0), (64, 16)).sum(axis=0))

    d = summed.bind(np.zeros((64, 16), np.float32), np.zeros(16, np.float32)).describe()
    (bar,) = d.named_barriers
    assert [(d.roles[a.role].name, a.does) for a in bar.actions] == [
        ("one", "arrives"),
        ("one", "waits"),
    ]


def test_a_program_is_one_line() -> None:
    assert repr(copying()) == (
        "<Program 'copy' (load, store), 2 CTAs of 64 threads, 528 bytes of shared memory>"
    )


@pytest.mark.parametrize("arch", ["sm90", "sm100"])
def test_the_gemm_says_who_fills_and_who_frees(arch: str) -> None:
    from tilepipe.registry.catalog import find

    spec = find("gemm")
    config, _ = spec.configure({"arch": arch}, None)
    d = spec.make(config, 0).program.describe()
    ring = next(ring for ring in d.rings if ring.name == "inputs")
    name = {i: role.name for i, role in enumerate(d.roles)}
    assert {(name[a.role], a.does) for a in ring.full.actions} == {
        ("load", "expects"),
        ("load", "copies"),
        ("mma", "waits"),
    }
    frees = "arrives" if arch == "sm90" else "commits"
    assert {(name[a.role], a.does) for a in ring.empty.actions} == {
        ("load", "waits"),
        ("mma", frees),
    }
    assert ring.nbytes == ring.stages * int(ring.full.bytes[0].replace(",", ""))
    assert all(re.fullmatch(r"\w+\.py:\d+", x) for a in ring.full.actions for x in a.at)
    assert d.tmem_columns == (0 if arch == "sm90" else 256)
