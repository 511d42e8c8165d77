"""What the commands know of the gradients of attention: settings, random cases, checked instances.
The kernel is that of dK, dV and the sums of dQ; what stands before and behind it is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.attention.reference import attention
from tilepipe.kernels.attention.validation import INPUTS, Extents
from tilepipe.kernels.attention_backward import reference, sm90_bind as kernel
from tilepipe.kernels.attention_backward.choice import TUNABLE, BackwardProblem
from tilepipe.kernels.attention_backward.config import DEPTHS, KEYS, STAGES, BackwardConfig, tile
from tilepipe.registry.instances import SMS, Size, Sizes, steps_of
from tilepipe.registry.products import check_sizes
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

_CONFIGS = Configs({"sm90": BackwardConfig})
_EXTENTS: dict[str, Setting] = {
    "batch": 1,
    "heads": 2,
    "kv_heads": 1,
    "s_q": 512,
    "s_kv": 512,
    "d": 128,
}
_OTHERS: dict[str, Setting] = {
    "causal": False,
    "align": "last",
    "deterministic": False,
    "dtype": "bfloat16",
}


def extents(settings: Mapping[str, Any]) -> Extents:
    """The extents that settings state.

    Raises:
        BindError: an extent, a number of heads or a dtype that no gradient has, or more than a run
            can hold.
    """
    batch, heads, kv_heads, s_q, s_kv, d = (settings[name] for name in _EXTENTS)
    check_sizes(settings, _EXTENTS, batch * s_q * heads * d, batch * s_kv * kv_heads * d)
    dtype = tp.dtype(settings["dtype"])
    if dtype not in INPUTS:
        raise BindError(f"setting dtype must be {' or '.join(t.name for t in INPUTS)}, got {dtype}")
    if d % 8 or not 0 < d <= DEPTHS[-1]:
        raise BindError(f"setting d must be a multiple of 8 up to {DEPTHS[-1]}, got {d}")
    if heads % kv_heads:
        raise BindError(
            f"setting heads={heads} must be a multiple of kv_heads={kv_heads}: heads share keys and"
            " values"
        )
    return Extents(batch, s_q, s_kv, heads, kv_heads, d, d, dtype, 1 / math.sqrt(d))


def _choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
    return chosen(TUNABLE, problem(settings), chip)


def problem(settings: Mapping[str, Any]) -> BackwardProblem:
    """What the configuration depends on, of what settings state. Raises BindError as `extents`."""
    asked = {name: settings[name] for name in ("causal", "deterministic")}
    return BackwardProblem.of(extents(settings), **asked)


def _make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
    found, rng = extents(settings), np.random.default_rng(seed)
    kind, options = found.dtype.numpy, {name: settings[name] for name in ("causal", "align")}
    q, k, v, dout = (
        rng.standard_normal((found.batch, s, heads, found.d), dtype=np.float32).astype(kind)
        for s, heads in (
            (found.s_q, found.heads),
            (found.s_kv, found.kv_heads),
            (found.s_kv, found.kv_heads),
            (found.s_q, found.heads),
        )
    )
    out, lse = attention(q, k, v, **options)
    space = kernel.Workspace.of(found, settings["deterministic"], np.zeros)
    space.lse_2[...] = np.where(np.isfinite(lse), lse * math.log2(math.e), np.inf)
    delta = (dout.astype(np.float64) * out.astype(kind).astype(np.float64)).sum(axis=-1)
    space.delta[...] = delta.swapaxes(1, 2)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    program = kernel.bind(
        q, k, v, dout, dk, dv, space, _CONFIGS.config(settings), **options, chip=chip
    )

    def verify() -> tp.testing.Comparison:
        dq = (space.sums * found.scale).swapaxes(1, 2)
        compared = reference.compare((dq, dk, dv), dout, q, k, v, **options)
        return max(compared, key=lambda x: x.worst)

    tiles = found.batch * found.kv_heads * -(-found.s_kv // KEYS)
    return Case(program, dk, verify, tiles)


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """Two tiles of keys, the second of them cut, and tiles of queries that do not go round the
    ring; and those of three heads that share the keys, which go round it twice and more.
    """
    queries, _ = tile(settings["d"], settings["d"])
    short, _ = steps_of(STAGES)
    return {
        f"2 tiles of keys, {heads} × {tiles} of queries, {SMS} CTAs": Size(
            {
                "s_q": tiles * queries - 10,
                "s_kv": 2 * KEYS - 10,
                "heads": heads,
                "kv_heads": 1,
                "batch": 1,
            },
            SMS,
        )
        for heads, tiles in ((1, short), (3, STAGES))
    }


ATTENTION_BACKWARD = KernelSpec(
    "attention_backward",
    "dK, dV and sums of dQ of softmax(scale · Q · Kᵀ) · V, given dO: causal or full, heads of K and"
    " V shared or not, dQ added up in any order or in a fixed one",
    _CONFIGS,
    _EXTENTS | _OTHERS,
    frozenset({"s_q", "s_kv"}),
    _make,
    _choose,
    _sizes,
    bench="tilepipe.bench.attention_backward",
    tuning=Tuning(TUNABLE, problem, ("s_q", "s_kv")),
)
