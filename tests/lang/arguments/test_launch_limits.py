"""The chip's limits: the message has the arithmetic."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused
from tilepipe.ir import placement as finish


def bound(text: str) -> Any:
    return from_text(text).bind(np.zeros(4, np.int32)).kernel


def roles(**sizes: str) -> str:
    return "\n".join(f"ctx.role('{name}', {size})(lambda: None)" for name, size in sizes.items())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ctx.smem((128, 64), 'bfloat16', count=15, name='ring')\n" + roles(a="warps=1"),
            (
                "shared memory: 245,760 bytes needed",
                "232,448 available",
                "13,312 too many",
                "ring: 15 × 128×64 bfloat16 = 245,760",
                "Use fewer stages",
            ),
        ),
        (
            "tp.SMemArray(ctx, tp.SharedMemBarrier, 29057)\n" + roles(a="warps=1"),
            ("232,456 bytes needed", "8 too many", "barriers: 29,057, 8 bytes each"),
        ),
        (roles(a="warps=33"), ("1056 threads", "a 1056", "at most 1024")),
        (
            roles(a="warpgroups=8", b="warps=1"),
            ("1056 threads", "a 1024 + b 32", "padded to 1152", "at most 1024"),
        ),
        (roles(a="warpgroups=9"), ("1152 threads",)),
        (
            roles(a="warpgroups=1, registers=20"),
            ("role 'a' asks for 20 registers", "multiple of 8 in 24..256"),
        ),
        (roles(a="warpgroups=1, registers=100"), ("100 registers", "multiple of 8")),
        (roles(a="warpgroups=1, registers=264"), ("264 registers", "24..256")),
        (
            roles(a="warpgroups=2, registers=256", b="warps=4, registers=24"),
            (
                "128 × (256 + 256 + 24) = 68,608",
                "launched with 168 a thread, 384 × 168 = 64,512",
                "the other 4,096 for ever",
            ),
        ),
        (
            roles(load="warps=1, registers=32", mma="warpgroups=2, registers=240"),
            (
                "128 × (240 + 240 + 32) = 65,536",
                "CTA of 384 threads is launched with 168 a thread, 384 × 168 = 64,512",
                "setmaxnreg.inc would wait for the other 1,024 for ever",
                "to a sum of 504 over the warpgroups",
            ),
        ),
        (roles(a="warpgroups=5, registers=104"), ("640 × 96 = 61,440", "a sum of 480")),
        (
            roles(a="warps=1, registers=40", b="warps=1, registers=48"),
            ("share the warpgroup of warps 0..3", "'a': 40", "'b': 48", "make them agree"),
        ),
        (
            roles(a="warpgroups=1, registers=40", b="warpgroups=1"),
            ("['b'] do not", "give each warpgroup a register count"),
        ),
    ],
)
def test_limits(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.LimitError, *words):
        bound(text)


@pytest.mark.parametrize(
    "text",
    [
        roles(load="warps=1, registers=24", mma="warpgroups=2, registers=240"),
        roles(a="warpgroups=2, registers=256"),
        roles(a="warpgroups=4, registers=128"),
        roles(a="warpgroups=5, registers=96"),
        roles(a="warpgroups=8, registers=64"),
    ],
)
def test_exactly_the_registers_of_a_launch(text: str) -> None:
    """The hole comes back with `monkeypatch.setattr(finish, "broken_pool_rule", lambda *_:
    None)`.
    """
    kernel = bound(text)
    asked = sum(r.registers or 0 for r in kernel.roles for _ in range(-(-r.warps // 4)))
    assert asked * 128 == kernel.threads * finish.launch_registers(kernel.threads)


def test_exactly_all_shared_memory() -> None:
    kernel = bound("tp.SMemArray(ctx, tp.SharedMemBarrier, 29056)\n" + roles(a="warps=1"))
    assert kernel.smem_bytes == 227 * 1024


def test_named_barriers_run_out() -> None:
    body = "\n".join(
        f"@ctx.role('r{i}', warpgroups=2)\ndef r{i}():\n    ctx.sync_warpgroup()\n   "
        " ctx.sync_role()"
        for i in range(4)
    )
    assert [b.id for b in bound(body).named_barriers] == [1, 3, 4, 6, 7, 9, 10, 12]
    wide = "\n".join(
        f"@ctx.role('r{i}', warpgroups=1)\ndef r{i}():\n    ctx.sync_warpgroup()\n   "
        " ctx.sync_role()"
        for i in range(8)
    )
    with refused(
        tp.LimitError,
        "named barriers: 16 used and one reserved",
        "has 16",
        "'r0.warpgroup': role 'r0' at ",
        "'r7.role': role 'r7' at ",
        "use mbarriers, or fewer roles",
    ):
        bound(wide)


def test_reductions_are_users_of_named_barriers() -> None:
    wide = "\n".join(
        f"@ctx.role('r{i}', warpgroups=1)\ndef r{i}():\n    x = ctx.accumulator((64, 16))\n"
        "    x.fill(0)\n    x.sum(axis=0)\n    ctx.sync_role()"
        for i in range(8)
    )
    with refused(tp.LimitError, "named barriers: 16 used", "'r0.warpgroup': role 'r0' at "):
        bound(wide)


def test_the_users_of_too_many_named_barriers() -> None:
    """Each with its line, and one that nothing uses."""
    made = "\n".join(f"b{i} = ctx.named_barrier(64, 'bar{i}')" for i in range(16))
    body = "\n".join(
        f"@ctx.role('r{i}', warps=1)\ndef r{i}():\n    b0.{use}()"
        for i, use in enumerate(("sync", "arrive"))
    )
    with pytest.raises(tp.LimitError) as error:
        bound(f"{made}\n{body}")
    rows = str(error.value).split("\n")
    first, second = rows[1].removeprefix("  'bar0': ").split(", ")
    assert re.fullmatch(r"role 'r0' at <cell \d+>:20", first)
    assert re.fullmatch(r"role 'r1' at <cell \d+>:23", second)
    assert rows[2] == "  'bar1': not used"


@pytest.mark.parametrize(
    ("text", "first_warps", "warps"),
    [
        (roles(load="warps=1", mma="warpgroups=2"), {"load": 8, "mma": 0}, 12),
        (roles(load="warps=1", store="warps=2"), {"load": 0, "store": 1}, 3),
        (roles(load="warps=1, registers=40"), {"load": 0}, 4),
        (
            roles(a="warps=1", b="warpgroups=1", c="warps=3", d="warpgroups=1"),
            {"a": 8, "b": 0, "c": 9, "d": 4},
            12,
        ),
        (roles(a="warps=3, registers=24", b="warps=2, registers=24"), {"a": 0, "b": 3}, 8),
    ],
)
def test_roles_are_laid_out_on_warps(text: str, first_warps: dict[str, int], warps: int) -> None:
    kernel = bound(text)
    assert {r.name: r.first_warp for r in kernel.roles} == first_warps
    assert kernel.warps == warps


def test_memory_is_aligned_for_its_swizzle() -> None:
    text = "\n".join(
        f"ctx.smem({shape}, 'bfloat16', swizzle={s}, name='b{i}')"
        for i, (shape, s) in enumerate([((1, 8), 0), ((8, 16), 32), ((8, 64), 128), ((8, 32), 64)])
    )
    kernel = bound(f"{text}\n{roles(a='warps=1')}")
    assert all(b.offset % (8 * b.swizzle or 128) == 0 for b in kernel.buffers)
    spans = sorted((b.offset, b.offset + b.nbytes) for b in kernel.buffers)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.parametrize(
    ("chip", "words"),
    [
        (tp.Chip(smem_per_cta=1024), ("1,024 available",)),
        (tp.Chip(max_threads=64), ("at most 64",)),
    ],
)
def test_limits_are_those_of_the_chip_given(chip: tp.Chip, words: tuple[str, ...]) -> None:
    k = from_text("ctx.smem((8, 128), 'bfloat16')\n" + roles(a="warps=4"))
    with refused(tp.LimitError, *words):
        k.bind(np.zeros(4, np.int32), chip=chip)
