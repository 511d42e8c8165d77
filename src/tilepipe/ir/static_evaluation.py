"""Static evaluation of expressions that depend only on constants, lanes, warps and CTA ranks, and
on the host also on arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir import dtypes, expressions as e
from tilepipe.ir.expressions import Expr
from tilepipe.ir.numbers import limits, shl, shr
from tilepipe.ir.program import WARP, Role

IntArray = npt.NDArray[Any]

BINARY: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.vectorize(shl, otypes=[object]),
    "shr": np.vectorize(shr, otypes=[object]),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def evaluate(x: Expr, env: Mapping[str, IntArray]) -> IntArray | None:
    """The value of `x` with special registers, and parameters (`n`, `a.shape[0]`), taken from
    `env`; None when it depends on anything else.
    """
    match x:
        case e.Const():
            return np.asarray(x.value)
        case e.Special():
            return env.get(x.name)
        case e.Param():
            return env.get(x.name if x.axis < 0 else f"{x.name}.shape[{x.axis}]")
        case e.Unary(op=op) if op in ("neg", "not"):
            if (a := evaluate(x.a, env)) is None:
                return None
            return np.negative(a) if op == "neg" else np.invert(a)
        case e.Binary():
            a, b = evaluate(x.a, env), evaluate(x.b, env)
            return None if a is None or b is None else _binary(x, a, b)
        case e.Select():
            c, a, b = evaluate(x.cond, env), evaluate(x.a, env), evaluate(x.b, env)
            return None if c is None or a is None or b is None else np.where(c, a, b)
    return None


def _binary(x: e.Binary, a: IntArray, b: IntArray) -> IntArray | None:
    """The value of an operation; None where it wraps, or is undefined for some thread, which a
    condition may exclude.
    """
    if x.dtype.kind == "uint" or (x.op in ("floordiv", "mod", "div") and not np.all(b)):
        return None
    result: IntArray = BINARY[x.op](a, b)
    if result.dtype != object:
        return result
    low, high = limits(dtypes.int64)
    return result.astype(np.int64) if all(low <= value <= high for value in result.flat) else None


def thread_env(role: Role, cluster_size: int) -> dict[str, npt.NDArray[np.int64]]:
    """Special registers of every thread of a role, shaped to broadcast over [CTA of the cluster,
    agent, thread of the agent].
    """
    threads = np.arange(role.agent_threads)[None, None, :]
    agent = np.arange(role.agents)[None, :, None]
    warp_in_agent = threads // WARP
    warps_per_agent = role.agent_threads // WARP
    return {
        "lane": threads % WARP,
        "warp": agent * warps_per_agent + warp_in_agent,
        "warp_in_group": warp_in_agent if role.is_warpgroup else agent % 4 + warp_in_agent,
        "thread": agent * role.agent_threads + threads,
        "warpgroup": agent if role.is_warpgroup else np.zeros_like(agent),
        "cta_rank": np.arange(cluster_size)[:, None, None],
    }
