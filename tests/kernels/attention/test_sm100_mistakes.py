"""The sm_100 attention with one line of its protocol left out, moved or changed: what the simulator
says, whatever the interleaving.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.attention.sm100_cases import Problem, grown, planted

ACQUIRE = "            scores[i].acquire(j)\n"
AFTER = (
    "            ctx.tcgen05_fence_after()\n"
    "            with ctx.elect_one():\n"
    "                ctx.mma(\n"
    "                    o(i)"
)
STORED = (
    "            ctx.tmem_wait_store()\n            ctx.tcgen05_fence_before()\n            given."
)
LATE_V = "                multiply_output(1, n > 1)\n                v_read.release_v()\n"
UNREADY = (tp.RaceError, tp.PoisonError)  # read too early: while the data come, or before they have


@dataclass(frozen=True)
class Mistake:
    """`old` replaced by `new`; the error, and what its message must contain."""

    old: str
    new: str
    error: type[tp.TilepipeError] | tuple[type[tp.TilepipeError], ...]
    said: tuple[str, ...]
    keys: int = 500
    advised: bool = False  # advice, and a fault under the strict rules alone


MISTAKES = {
    "the second half of P is not waited for": Mistake(
        ACQUIRE,
        "            if j == 0:\n    " + ACQUIRE,
        tp.RaceError,
        (
            "race on tensor memory",
            "role 'softmax0'",
            "tmem_store",
            "role 'mma'",
            "tcgen05_mma",
            "a barrier that role 'mma' of CTA",
        ),
    ),
    "no fence behind the wait for P": Mistake(
        AFTER,
        AFTER.split("\n", 1)[1],
        tp.RaceError,
        (
            "no tcgen05.fence::after_thread_sync stands between",
            "role 'mma'",
            "ctx.tcgen05_fence_after()",
        ),
        advised=True,
    ),
    "P is told before it is stored": Mistake(
        STORED,
        STORED.split("\n", 1)[1],
        tp.RaceError,
        ("race on tensor memory", "tmem_store", "ctx.tmem_wait_store()", "role 'softmax0'"),
    ),
    "no fence before P is told": Mistake(
        STORED,
        "            ctx.tmem_wait_store()\n            given.",
        tp.RaceError,
        ("no tcgen05.fence::before_thread_sync stands between", "role 'softmax0'", "tmem_store"),
        advised=True,
    ),
    "the correction does not say that it is done": Mistake(
        "                done[i].release_no_step()\n",
        "",
        tp.RaceError,
        ("race on tensor memory", "role 'correction'", "role 'mma'", "columns 256.."),
    ),
    "no commit behind P V": Mistake(
        "        outputs[i].commit_mma()\n",
        "",
        tp.DeadlockError,
        ("role 'correction'", "o0.full", "1 of 1 arrivals"),
    ),
    "no commit behind Q K": Mistake(
        "        scores[i].commit_mma()\n",
        "",
        tp.CountError,
        ("no role arrives on 's0.full'", "Its producer must"),
    ),
    "the ring of S is not stepped": Mistake(
        "        scores[i].step()\n",
        "",
        (tp.RaceError, tp.BarrierError),
        ("role 'mma'",),
    ),
    "V is released before it is read": Mistake(
        LATE_V,
        "\n".join(reversed(LATE_V.splitlines())) + "\n",
        UNREADY,
        ("v[", "role 'mma'", "tcgen05_mma"),
    ),
    "K is released by the first of its readers": Mistake(
        "if i == TILES - 1:",
        "if i == 0:",
        UNREADY,
        ("k[", "role 'mma'", "tcgen05_mma"),
    ),
    "the last V is not released": Mistake(
        "        multiply_output(1, work.blocks > 1)\n        v_read.release_v()\n",
        "        multiply_output(1, work.blocks > 1)\n",
        tp.DeadlockError,
        ("role 'load'", "v.empty[", "1 of 1 arrivals short", "trip counts of the roles differ"),
    ),
    "the rings are not drained": Mistake(
        "    k_load.drain()\n    v_load.drain()\n",
        "",
        tp.ExitError,
        ("exits while role 'mma'", ".empty[", "drain()"),
    ),
    "the second tile of queries is not waited for": Mistake(
        "                shared.q1_full.wait(0)\n",
        "                pass\n",
        UNREADY,
        ("q1[0]", "role 'mma'"),
    ),
    "the bytes of Q are not expected": Mistake(
        " + (q_tiles[0].tile_bytes if with_q else 0)",
        "",
        (tp.BarrierError, *UNREADY),
        ("k",),
    ),
    "S is read before it is computed": Mistake(
        "        given.wait()\n",
        "",
        UNREADY,
        ("tensor memory", "role 'softmax"),
    ),
    "S is used before it is loaded": Mistake(
        "        ctx.tmem_wait_load()\n        if masked",
        "        if masked",
        tp.RaceError,
        ("role 'softmax0'", "while a load from tensor memory", "ctx.tmem_wait_load()"),
    ),
    "factors are read after they are given back": Mistake(
        "            factor.load(factors[i])\n",
        "            pass\n        factor.load(factors[i])\n",
        tp.RaceError,
        ("race on factors[", "role 'correction'", "fragment_load"),
    ),
    "no factor is told": Mistake(
        "        pass_on(factor)\n",
        "",
        tp.DeadlockError,
        ("role 'correction'", "factors0.full", "128 of 128 arrivals"),
    ),
    "O is stored before its MMAs are done": Mistake(
        "        done[i].wait()  # and so all MMAs that read Q, whose tiles are written below\n",
        "",
        tp.RaceError,
        ("race on tensor memory", "role 'mma'", "role 'correction'", "ctx.mma_commit"),
    ),
    "TMA reads O without a fence of proxies": Mistake(
        "        ctx.fence_proxy_async()\n",
        "",
        tp.RaceError,
        ("race between proxies on q0[0]", "tma_store q0[0] -> out"),
    ),
    "the CTA leaves before O is stored": Mistake(
        "        ctx.tma_store_wait(0)\n",
        "        pass\n",
        tp.ExitError,
        ("TMA store may still read q0[0]", "role 'correction'"),
    ),
    "no block where few keys are": Mistake(
        "    work = Work(ctx, q, k, cfg, causal)\n",
        "    work = Work(ctx, q, k, cfg, causal)\n"
        "    work.blocks = ctx.let(work.blocks - 1, 'blocks')\n",
        UNREADY,
        ("v[0]", "role 'mma'"),
        keys=100,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, tmp_path: Path) -> None:
    """Each is found with any seed, in the run in which it is made; none by a wrong result."""
    mistake = MISTAKES[name]
    module = planted(tmp_path, mistake.old, mistake.new)
    kinds = mistake.error if isinstance(mistake.error, tuple) else (mistake.error,)
    if kinds == (tp.CountError,):
        with pytest.raises(tp.CountError) as caught:
            Problem(500, mistake.keys, module=module)
        assert all(word in str(caught.value) for word in mistake.said), str(caught.value)
        return
    program = Problem(500, mistake.keys, module=module, change=grown(3.0)).program
    for seed in range(2):
        if mistake.advised:
            advice = program.run(seed=seed).advice
            assert any(all(word in line for word in mistake.said) for line in advice), advice
            continue
        with pytest.raises(kinds) as error:
            program.run(seed=seed)
        missing = [word for word in mistake.said if word not in str(error.value)]
        assert not missing, f"seed {seed}: the message lacks {missing}:\n{error.value}"


@pytest.mark.slow
def test_the_kernel_that_mistakes_are_planted_in_is_right(tmp_path: Path) -> None:
    module = planted(tmp_path, "    d, bn = v.box[-2], cfg.bn\n", "    bn, d = cfg.bn, v.box[-2]\n")
    Problem(500, 500, module=module, change=grown(3.0)).right()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("above", "growth", "rescales"),
    [(1, 0.5, False), (1, 3, True), (8, 7, False), (8, 9, True), (15, 14, False)],
)
def test_output_is_rescaled_where_the_maximum_has_grown(
    above: int, growth: float, rescales: bool, tmp_path: Path
) -> None:
    """A correction that destroys what it should multiply is not noticed unless it has to, and only
    in the rows of that warp: here scores of rows 32 to 63 of both tiles grow by a power of 2, those
    of others stay 0.
    """

    def change(q: Any, k: Any, v: Any) -> None:
        q[...] = 0
        q[:, 32:64] = q[:, 160:192] = 1
        k[:, :128] = 0
        k[:, 128:] = growth * math.log(2) / math.sqrt(64)

    module = planted(
        tmp_path,
        "o(i).cols(at, SLICE).store(x * factor)",
        "o(i).cols(at, SLICE).store(x * 0.0 + 1e4)",
    )
    problem = Problem(
        256, 256, 64, module=module, change=change, dtype=np.float16, rescale_above=above
    )
    problem.program.run(seed=1)
    wrong = np.abs(problem.out[0, :, 0].astype(float)).max(1) > 10
    assert np.flatnonzero(wrong).tolist() == (
        [*range(32, 64), *range(160, 192)] if rescales else []
    )
    assert problem.compared().ok is not rescales


def test_a_ring_that_is_too_short_is_refused() -> None:
    """One V tile would be held by P1 · V of a block while P0 · V of the next waits for another."""
    with pytest.raises(tp.BindError, match="stages must be at least 2: a V tile is held"):
        Problem(256, 256, stages=1)
