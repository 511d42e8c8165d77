"""Typed tiles and accesses by address in one address space."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tilepipe.errors import BarrierError, PoisonError, RaceError, SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.chip import H200
from tilepipe.ir.layout import byte_offsets
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import SmemBuffer
from tilepipe.machine.actors import Request, Role
from tilepipe.machine.barriers import mbarrier, rendezvous
from tilepipe.machine.clusters import one_after_another
from tilepipe.machine.machine import World
from tilepipe.machine.memory import elements
from tilepipe.machine.memory.byte_access import load_bytes, store_bytes, store_matrix
from tilepipe.machine.program import AgentPlan, BarrierPlan, Program
from tilepipe.machine.sites import Site

WARP, FIRST = 0xFFFFFFFF, 1
TILE = SmemBuffer("tile", dtypes.bfloat16, 2, 8, 64, swizzle=128, offset=1024)
OTHER = SmemBuffer("other", dtypes.int32, 1, 8, 4, offset=1024 + TILE.tile_bytes)  # on tile[1]
WHOLE = (0, 8, 0, 64)
BARRIER = 512
WHAT = ("typed store", "byte store", "typed load", "byte load", "meet", "init")
SITES = {what: Site(i, Loc("program.ptx", 1 + i), what, what, "r") for i, what in enumerate(WHAT)}
Results = dict[str, Any]


def typed_store(value: float, row: int, col: int, slot: int = 0) -> Request:
    return elements.store, (SITES["typed store"], FIRST, value, slot, WHOLE, row, col)


def typed_load(row: int, col: int) -> Request:
    return elements.load, (SITES["typed load"], FIRST, 0, WHOLE, row, col)


def byte_store(address: int, *values: int) -> Request:
    raw = np.zeros((32, len(values)), np.uint8)
    raw[0] = values
    return store_bytes, (SITES["byte store"], FIRST, [address] * 32, raw)


def byte_load(address: int, nbytes: int) -> Request:
    return load_bytes, (SITES["byte load"], FIRST, [address] * 32, nbytes)


MEET: Request = (rendezvous.named_sync, (SITES["meet"], WARP, 0))


def run(*warps: list[Request], seed: int = 0) -> list[Any]:
    """Runs one body for each warp; returns the results of the last."""
    results: list[Any] = []

    def body(m: Any, agent: Any) -> Generator[Request, Any, None]:
        for request in warps[agent.index]:
            result = yield request
            if agent.index == len(warps) - 1:
                results.append(result)

    role = Role("r", warpgroups=False, alone=len(warps) == 1)
    program = Program(
        1,
        [AgentPlan(role, i, i, 1) for i in range(len(warps))],
        tuple(SITES.values()),
        buffers=(TILE, OTHER),
        barriers=(BarrierPlan("bars", 2, BARRIER, by_parity=True),),
        named=(("bar 0", 32 * len(warps)),),
        smem_bytes=4096,
    )
    world = World(program, body, H200, 1, [])
    one_after_another(world, [0], Random(seed) if seed else None, lambda m: None)
    return results


def address(row: int, col: int, slot: int = 0) -> int:
    offset = byte_offsets(TILE, np.array(row), np.array(col))
    return TILE.offset + slot * TILE.tile_bytes + int(offset)


def bf16(value: float) -> list[int]:
    return list(np.array([value], ml_dtypes.bfloat16).view(np.uint8))


@pytest.mark.parametrize(("row", "col"), [(0, 0), (3, 17), (7, 63)])
def test_bytes_of_a_typed_store(row: int, col: int) -> None:
    loaded = run([typed_store(1.5, row, col), MEET], [MEET, byte_load(address(row, col), 2)])
    assert loaded[-1][0].tolist() == bf16(1.5)


@pytest.mark.parametrize(("row", "col"), [(0, 0), (3, 17), (7, 63)])
def test_elements_of_a_byte_store(row: int, col: int) -> None:
    """Also beside elements that were typed before."""
    first = [typed_store(4.0, row, col ^ 1), byte_store(address(row, col), *bf16(-2.0)), MEET]
    loaded = run(first, [MEET, typed_load(row, col), typed_load(row, col ^ 1)])
    assert loaded[-2:] == [-2.0, 4.0]


def test_a_typed_store_is_seen_after_a_byte_access() -> None:
    requests = [
        byte_store(address(1, 0), *bf16(1)),
        typed_store(3.0, 1, 0),
        byte_load(address(1, 0), 2),
    ]
    assert run(requests)[-1][0].tolist() == bf16(3.0)


@pytest.mark.parametrize("seed", range(4))
def test_typed_and_byte_accesses_of_one_byte_race(seed: int) -> None:
    with pytest.raises(RaceError) as caught:
        run([typed_store(1.0, 2, 8)], [byte_store(address(2, 8) + 1, 7)], seed=seed)
    text = str(caught.value)
    assert "typed store" in text
    assert "byte store" in text
    assert "which share their bytes" in text
    assert f"bytes {address(2, 8) + 1:#x}" in text
    assert "row 2, column 8" in text


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("write", "read"),
    [
        (typed_store(2.0, 2, 8), byte_load(address(2, 8), 2)),
        (byte_store(address(2, 8), *bf16(2.0)), typed_load(2, 8)),
    ],
)
def test_a_read_by_the_other_kind_races_with_a_write(
    write: Request, read: Request, seed: int
) -> None:
    """Whichever comes first, of bytes that have been written before."""
    with pytest.raises(RaceError, match="which share their bytes"):
        run([typed_store(1.0, 2, 8), MEET, write], [MEET, read], seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_other_bytes_of_one_tile_do_not(seed: int) -> None:
    run([typed_store(1.0, 2, 8)], [byte_store(address(2, 9), *bf16(1.0))], seed=seed)


OTHER_WHOLE = (0, 8, 0, 4)


@pytest.mark.parametrize("seed", range(4))
def test_tiles_of_different_types_on_the_same_bytes(seed: int) -> None:
    """An int32 tile on the bytes of a bf16 tile: unordered accesses race, ordered ones
    reinterpret.
    """
    store: Request = (
        elements.store,
        (SITES["typed store"], FIRST, 0x3F804000, 2, OTHER_WHOLE, 0, 0),
    )
    load: Request = (elements.load, (SITES["typed load"], FIRST, 1, WHOLE, 0, 1))
    with pytest.raises(RaceError, match="which share their bytes"):
        run([typed_store(1.0, 0, 1, slot=1)], [store], seed=seed)
    assert run([store, MEET], [MEET, load], seed=seed)[-1] == 1.0
    run([typed_store(1.0, 1, 0, slot=1)], [store], seed=seed)  # other bytes


def test_bytes_that_nothing_has_written_are_poison() -> None:
    with pytest.raises(PoisonError, match="2 of 4 bytes were never written"):
        run([byte_store(64, 1, 2), byte_load(64, 4)])
    with pytest.raises(PoisonError, match="elements were never written"):
        run([byte_store(address(0, 0), 1), typed_load(0, 0)])  # half of it


def test_lanes_of_a_warp() -> None:
    """A lane sees its own stores; another lane's, after the warp has converged."""
    raw = np.arange(32, dtype=np.uint8)[:, None]
    store: Request = (store_bytes, (SITES["byte store"], WARP, range(32), raw))
    own: Request = (load_bytes, (SITES["byte load"], WARP, range(32), 1))
    next_one = [(lane + 1) % 32 for lane in range(32)]
    turned: Request = (load_bytes, (SITES["byte load"], WARP, next_one, 1))
    sync: Request = (rendezvous.syncwarp, (SITES["meet"], WARP))
    assert run([store, own])[-1][:, 0].tolist() == list(range(32))
    with pytest.raises(RaceError, match="nothing orders"):
        run([store, turned])
    assert run([store, sync, turned])[-1][:, 0].tolist() == next_one


def test_two_lanes_store_different_values_to_one_byte() -> None:
    raw = np.arange(32, dtype=np.uint8)[:, None]
    with pytest.raises(RaceError, match="store different values to 0x40"):
        run([(store_bytes, (SITES["byte store"], WARP, [0x40] * 32, raw))])


def test_stmatrix_stores_rows_at_the_addresses_of_the_first_threads() -> None:
    values = np.arange(16 * 16, dtype=np.uint8).reshape(16, 16)
    rows = [256 + 16 * ((5 * lane) % 16) for lane in range(32)]
    store: Request = (store_matrix, (SITES["byte store"], WARP, rows, values))
    load: Request = (load_bytes, (SITES["byte load"], 0xFFFF, rows, 16))
    got: npt.NDArray[np.uint8] = run([store, load])[-1][:16]
    assert (got == values).all()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (byte_load(4094, 4), "4 bytes at 0xffe, which is no multiple of 4"),
        (byte_load(4096, 4), "the CTA has 4,096 bytes of it"),
        (byte_store(2, 1, 2, 3, 4), "no multiple of 4"),
    ],
)
def test_addresses_that_are_refused(request_: Request, said: str) -> None:
    with pytest.raises(SimFault) as caught:
        run([request_])
    assert said in str(caught.value)


def test_placed_barriers_have_addresses_too() -> None:
    init: Request = (mbarrier.mbar_init, (SITES["init"], FIRST, 0, 2, 1))
    with pytest.raises(BarrierError, match=r"bytes of bars\[1\] .*Invalidate it"):
        run([init, byte_store(BARRIER + 12, 1)])
    again: Request = (mbarrier.mbar_inval, (SITES["init"], FIRST, 1))
    run([init, again, byte_store(BARRIER + 12, 1)])
