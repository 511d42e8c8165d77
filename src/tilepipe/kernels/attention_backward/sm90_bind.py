"""`bind` of the gradients of attention on Hopper: the programs of three kernels, which are launched
one after the other, and the memory that they share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention.validation import Extents, boxed
from tilepipe.kernels.attention_backward.config import KEYS, ROWS, BackwardConfig, tile
from tilepipe.kernels.attention_backward.heuristics import choose_sm90
from tilepipe.kernels.attention_backward.sm90 import attention_backward
from tilepipe.kernels.attention_backward.sm90_rows import finish, prepare
from tilepipe.kernels.attention_backward.validation import (
    NAME,
    check_backward,
    require_alike,
    require_float32,
)
from tilepipe.kernels.common.validation import Array, check_array, check_config, mapped, unboxed

STEP = 4  # elements of float32 whose rows TMA reads are a multiple of


@dataclass(frozen=True)
class Workspace:
    """Memory of the gradients of one call, which needs no values.

    Attributes:
        lse_2, delta: float32 (batch, heads, s_q), of which rows are multiples of 16 bytes apart.
        sums: float32 (batch, heads, s_q, d), to which parts of dQ are added.
        turns: int32 (batch, heads, tiles of queries): how many parts have been added, where they
            are added in a fixed order. None: in any.
    """

    lse_2: Any
    delta: Any
    sums: Any
    turns: Any | None = None

    @classmethod
    def of(
        cls, found: Extents, deterministic: bool, empty: Callable[[tuple[int, ...], str], Any]
    ) -> Workspace:
        """For a problem. `empty`: makes an array of a shape and a dtype."""
        queries, _ = tile(found.d, found.d_v)
        rows, padded = (found.batch, found.heads, found.s_q), -(-found.s_q // STEP) * STEP
        lse_2, delta = (empty((*rows[:2], padded), "float32")[:, :, : found.s_q] for _ in range(2))
        blocks = (*rows[:2], -(-found.s_q // queries))
        turns = empty(blocks, "int32") if deterministic else None
        return cls(lse_2, delta, empty((*rows, found.d), "float32"), turns)


def bind_prepare(
    out: Array,
    dout: Array,
    lse: Array,
    space: Workspace,
    dlse: Array | None = None,
    *,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program that goes first: statistics of the rows of out and dout (batch, s_q, heads, d_v),
    with lse and its gradient dlse (batch, heads, s_q) float32.
    """
    queries, depth = tile(space.sums.shape[3], out.shape[3])
    return prepare.bind(
        mapped(NAME, "out", out.swapaxes(1, 2), given=out),
        mapped(NAME, "dout", dout.swapaxes(1, 2), given=dout),
        unboxed(NAME, "lse", lse),
        unboxed(NAME, "dlse", dlse),
        space.lse_2,
        space.delta,
        space.sums,
        space.turns,
        chip=chip,
        depth=depth,
        queries=queries,
    )


def bind(
    q: Array,
    k: Array,
    v: Array,
    dout: Array,
    dk: Array,
    dv: Array,
    space: Workspace,
    cfg: BackwardConfig | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    align: str = "last",
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program of dk and dv, and of the sums of dQ, of what `bind_prepare` has left.

    Args:
        q, k, v, dout: as of `check_backward`. dk, dv: as k and v.
        cfg: chosen for the shape unless given.
        causal, scale, align: as of the forward pass.
        chip: whose limits hold, and for whose SMs `cfg` is chosen; unless given, that of the
            arrays, and an H200's SMs.

    Raises:
        BindError: arrays that do not fit together, or that TMA cannot take.
    """
    if cfg is not None:
        check_config(NAME, cfg, BackwardConfig, "a BackwardConfig")
    batch, s_q, heads, d = q.shape
    found = check_backward(q, k, v, dout, dout, space.delta, scale=scale)
    require_alike("dk", dk, "k", k)
    require_alike("dv", dv, "v", v)
    for name, x, shape in (
        ("lse_2", space.lse_2, (batch, heads, s_q)),
        ("delta", space.delta, (batch, heads, s_q)),
        ("sums", space.sums, (batch, heads, s_q, d)),
    ):
        require_float32(name, x, shape)
    if space.turns is not None:
        check_array(NAME, "turns", space.turns, 3, (tp.int32,))
    seen = Window.of(causal, None, align)
    queries, depth = tile(found.d, found.d_v)
    if cfg is None:
        in_turns, in_all = space.turns is not None, found.batch * found.kv_heads
        chosen_for = chip or tp.H200
        cfg = choose_sm90(causal, in_turns, found.group > 1, in_all, found.s_kv, chosen_for)
    return attention_backward.bind(
        boxed("q", q, (queries, depth), kernel=NAME),
        boxed("k", k, (KEYS, depth), kernel=NAME),
        boxed("v", v, (KEYS, depth), kernel=NAME),
        boxed("dout", dout, (queries, depth), kernel=NAME),
        mapped(NAME, "lse_2", space.lse_2, (1, 1, queries)),
        mapped(NAME, "delta", space.delta, (1, 1, queries)),
        mapped(NAME, "sums", space.sums.swapaxes(2, 3), (1, 1, depth, queries), "col"),
        boxed("dk", dk, (ROWS, depth), kernel=NAME),
        boxed("dv", dv, (ROWS, depth), kernel=NAME),
        space.turns,
        found.scale,
        0 if seen.from_first else found.s_kv - found.s_q,
        chip=chip,
        cfg=cfg,
        bm=queries,
        depth=depth,
        causal=causal,
    )


def bind_finish(
    sums: Array, delta: Array, dq: Array, scale: float, *, chip: tp.Chip | None = None
) -> tp.Program:
    """The program that goes last: dq (batch, s_q, heads, d) of the sums of a workspace, whose
    `delta` is taken along for its extents.
    """
    _, depth = tile(dq.shape[3], 0)
    written = mapped(NAME, "dq", dq.swapaxes(1, 2), given=dq)
    return finish.bind(delta, sums, written, float(scale), chip=chip, depth=depth)
