"""wgmma with operands by matrix descriptor, from a whole warpgroup and from each of its warps."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilepipe.errors import RaceError, SimFault
from tilepipe.ir import dtypes, ops
from tilepipe.ir.chip import H200
from tilepipe.ir.dtypes import DType
from tilepipe.ir.facts import Facts
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Request, Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.clusters import one_after_another
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory.fragment_access import read_registers, write_registers
from tilepipe.machine.memory.fragments import (
    Frag,
    WarpMatrix,
    accumulator_places,
    from_registers,
    operand_a_places,
    to_registers,
)
from tilepipe.machine.memory.matrix_operands import MatrixDescriptor, MatrixOperand, operand_places
from tilepipe.machine.memory.storage import rounded
from tilepipe.machine.program import AgentPlan, Program
from tilepipe.machine.sites import Site
from tilepipe.machine.units import wgmma

M, N, B_AT = 64, 32, 16384
KINDS = ("wgmma_fence", "wgmma", "wgmma_commit", "wgmma_wait", "read")
FACTS = {op.kind: op.facts for op in ops.EVERY} | {"read": Facts()}
SITES = {
    kind: Site(i, Loc("mma.ptx", 1 + i), kind, kind, "mma", FACTS[kind])
    for i, kind in enumerate(KINDS)
}
RNG = np.random.default_rng(3)


def descriptor(start: int, rows: int, swizzle: int, *, k_major: bool) -> MatrixDescriptor:
    """Of a matrix whose core matrices lie densely."""
    if swizzle == 0:  # along M or N 128 bytes to the next 8 rows, along K after all of them
        return MatrixDescriptor(start, rows * 16, 128, 0)
    return MatrixDescriptor(start, 0 if k_major else 16 * swizzle, 8 * swizzle, swizzle)


def put(m: Machine, operand: MatrixOperand, values: npt.NDArray[Any]) -> None:
    """Writes a matrix to where a descriptor says it lies."""
    at = operand_places(
        operand.descriptor, operand.rows, operand.dtype.nbytes, k_major=operand.k_major
    )
    raw = np.ascontiguousarray(values.astype(operand.dtype.numpy)).view(np.uint8)
    m.ctas[0].bytes().put(at, raw.reshape(at.shape))


def product(
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    operands: tuple[MatrixOperand, MatrixOperand],
    *,
    by_warp: bool,
    registers: bool = False,
    skipped: frozenset[str] = frozenset(),
    uneven: bool = False,
) -> npt.NDArray[Any]:
    """What the machine computes for 2 · A · Bᵀ: one MMA that overwrites, one that adds."""
    warps = 1 if by_warp else 4
    out = np.zeros((M, N), np.float32)

    def body(m: Machine, agent: Agent) -> Generator[Request, Any, None]:
        rows = slice(16 * agent.index, 16 * agent.index + 16) if by_warp else slice(0, M)
        put(m, operands[0], a)
        put(m, operands[1], b)
        acc = Frag(WarpMatrix("acc", dtypes.float32, 16 * warps, N))
        left: Frag | MatrixOperand = operands[0]
        if registers:
            left = Frag(WarpMatrix("a", operands[0].dtype, 16 * warps, a.shape[1]))
            write_registers(left, agent, SITES["read"], a[rows], 0, a.shape[1])
        mask = (1 << 32 * warps) - 1
        requests: list[Request] = [
            (wgmma.wgmma_fence, (SITES["wgmma_fence"], mask)),
            (wgmma.wgmma, (SITES["wgmma"], mask, acc, left, None, operands[1], None, False)),
            (wgmma.wgmma, (SITES["wgmma"], mask, acc, left, None, operands[1], None, True)),
            (wgmma.wgmma_commit, (SITES["wgmma_commit"], mask)),
            (wgmma.wgmma_wait, (SITES["wgmma_wait"], mask, 0)),
        ]
        if uneven and agent.index == 1:
            del requests[2]
        for request in requests:
            if request[1][0].kind not in skipped:
                yield request
        out[rows] = read_registers(acc, agent, SITES["read"], 0, N)

    role = Role("mma", warpgroups=not by_warp, alone=not by_warp)
    agents = [AgentPlan(role, i, i, warps) for i in range(4 // warps)]
    program = Program(1, agents, tuple(SITES.values()), smem_bytes=32768, addressed=True)
    one_after_another(World(program, body, H200, 1, []), [0], None, lambda m: None)
    return out


def matrices(dtype: DType) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    k = 32 // dtype.nbytes
    return rounded(RNG.standard_normal((M, k)), dtype), rounded(RNG.standard_normal((N, k)), dtype)


@pytest.mark.parametrize("by_warp", [False, True])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(
    ("dtype", "k_major"),
    [
        (dtypes.bfloat16, True),
        (dtypes.bfloat16, False),
        (dtypes.float16, True),
        (dtypes.float8_e4m3, True),
    ],
)
def test_products(by_warp: bool, swizzle: int, dtype: DType, k_major: bool) -> None:
    a, b = matrices(dtype)
    operands = (
        MatrixOperand(descriptor(0, M, swizzle, k_major=k_major), dtype, M, k_major),
        MatrixOperand(descriptor(B_AT, N, swizzle, k_major=k_major), dtype, N, k_major),
    )
    for registers in (False, True):
        got = product(a, b, operands, by_warp=by_warp, registers=registers)
        np.testing.assert_allclose(
            got, 2 * a.astype(np.float64) @ b.astype(np.float64).T, 1e-5, 1e-5
        )


BF16 = (
    MatrixOperand(descriptor(0, M, 128, k_major=True), dtypes.bfloat16, M),
    MatrixOperand(descriptor(B_AT, N, 128, k_major=True), dtypes.bfloat16, N),
)


def test_tf32_truncates() -> None:
    operands = tuple(MatrixOperand(o.descriptor, dtypes.float32, o.rows, o.k_major) for o in BF16)
    a, b = np.full((M, 8), 1 + 2.0**-11, np.float32), np.ones((N, 8), np.float32)
    assert (product(a, b, (operands[0], operands[1]), by_warp=True) == 16).all()


def test_a_missing_fence() -> None:
    with pytest.raises(RaceError, match=r"no wgmma\.fence"):
        product(*matrices(dtypes.bfloat16), BF16, by_warp=True, skipped=frozenset({"wgmma_fence"}))


@pytest.mark.parametrize("by_warp", [False, True])
def test_a_missing_wait(by_warp: bool) -> None:
    with pytest.raises(RaceError, match="reads fragment 'acc' while 2 wgmmas that write it"):
        product(
            *matrices(dtypes.bfloat16), BF16, by_warp=by_warp, skipped=frozenset({"wgmma_wait"})
        )


def test_warps_that_issue_different_wgmma() -> None:
    with pytest.raises(
        SimFault, match=r"commits 1 wgmma to wgmma group 0 of warpgroup 0, and .* committed 2"
    ):
        product(*matrices(dtypes.bfloat16), BF16, by_warp=True, uneven=True)


def test_registers_of_a_warp() -> None:
    """PTX ISA, wgmma register fragments: D of m64nN, A of 16 and of 8 bits."""
    rows, cols = accumulator_places(16)
    assert [(rows[r, 5], cols[r, 5]) for r in range(5)] == [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10)]
    matrix = np.arange(256).reshape(16, 16)
    assert (from_registers(to_registers(matrix)) == matrix).all()
    rows, cols = operand_a_places(2)
    assert [(rows[r, 6, 0], cols[r, 6, 0]) for r in range(4)] == [(1, 4), (9, 4), (1, 12), (9, 12)]
    rows, cols = operand_a_places(1)
    assert [(rows[r, 6, 3], cols[r, 6, 3]) for r in range(4)] == [
        (1, 11),
        (9, 11),
        (1, 27),
        (9, 27),
    ]
