"""Instructions by which lanes of a warp learn of each other: votes, shuffles, elections (PTX ISA,
"Parallel Synchronization and Communication Instructions", and shfl.sync).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Operation,
    Spread,
    defines,
    operands,
    pair,
    where,
)
from tilepipe.ptx.lanes import LANES, Array, Lanes, lane_mask
from tilepipe.ptx.numerics.types import TYPES, Unsupported
from tilepipe.ptx.special_registers import ELECTED
from tilepipe.ptx.syntax.nodes import Instruction, Integer, SpecialRegister

_LANE = LANES.astype(np.int64)
_UNDEFINED = np.uint32(0x7FFFDEAD)


def _all(value: int | bool, dtype: type[np.generic]) -> Array:
    return np.full(32, value, dtype)


def _missing(instruction: Instruction, lane: int, sources: Array) -> SimFault:
    return SimFault(
        f"{where(instruction)}: {instruction}: lane {lane} takes the value of lane {sources[lane]},"
        " which does not execute it: undefined"
    )


@defines("shfl")
def _shfl(instruction: Instruction) -> Operation:
    """A value from another lane, which is undefined where that one takes no part. Sums over a part
    of a warp go up or down past its end in lanes whose result nobody uses: these get bits that
    spoil what they enter (a NaN), and other modes are a fault.
    """
    destination, source, chosen, bounds, members = operands(instruction, 5)
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    mode = modifiers.need("up", "down", "bfly", "idx")
    modifiers.need("b32")
    modifiers.end()
    targets = pair(destination)

    def lanes(active: Lanes, value: Array, b: Array, c: Array) -> tuple[Array, Array] | Array:
        segment = c.astype(np.int64) >> 8 & 31
        clamp = c.astype(np.int64) & 31
        most = (_LANE & segment) | (clamp & ~segment)
        least = _LANE & segment
        by = b.astype(np.int64) & 31
        if mode == "up":
            lane = _LANE - by
            valid = lane >= most
        elif mode == "down":
            lane = _LANE + by
            valid = lane <= most
        else:
            lane = _LANE ^ by if mode == "bfly" else least | (by & ~segment)
            valid = lane <= most
        from_lane = np.where(valid, lane, _LANE)
        taken = value[from_lane]
        missing = active & ~active[from_lane]
        if missing.any():
            if mode not in ("up", "down"):
                raise _missing(instruction, int(missing.argmax()), from_lane)
            taken = np.where(missing, _UNDEFINED, taken)
        return (taken, valid) if len(targets) == 2 else taken

    # all lanes take the value of one, where the choice is the same and segments are whole warps
    whole = isinstance(bounds, Integer) and bounds.value >> 8 == 0
    one = mode == "idx" and isinstance(chosen, Integer) and whole
    return Compute(
        tuple(zip(targets, ("b32", "pred"), strict=False)),
        ((source, "b32"), (chosen, "u32"), (bounds, "u32")),
        lanes,
        spread="one" if one else "lanes",
        active=True,
        members=members,
    )


@defines("vote")
def _vote(instruction: Instruction) -> Operation:
    destination, source, members = operands(instruction, 3)
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    mode = modifiers.need("all", "any", "uni", "ballot")
    kind = modifiers.need("b32" if mode == "ballot" else "pred")
    modifiers.end()

    def lanes(active: Lanes, value: Array) -> Array:
        votes = value[active]
        if mode == "ballot":
            return _all(lane_mask(active & value), np.uint32)
        if mode == "all":
            return _all(bool(votes.all()), np.bool_)
        if mode == "any":
            return _all(bool(votes.any()), np.bool_)
        return _all(bool(votes.all() or not votes.any()), np.bool_)

    return Compute(
        ((destination, kind),), ((source, "pred"),), lanes, spread="one", active=True,
        members=members,
    )  # fmt: skip


@defines("activemask")
def _activemask(instruction: Instruction) -> Operation:
    (destination,) = operands(instruction, 1)
    modifiers = Modifiers(instruction)
    modifiers.need("b32")
    modifiers.end()
    return Compute(
        ((destination, "b32"),), (), lambda active: _all(lane_mask(active), np.uint32),
        spread="one", active=True,
    )  # fmt: skip


@defines("elect")
def _elect(instruction: Instruction) -> Operation:
    """One of the lanes that execute it: the one that the machine elects if it is among them, else
    the next one, going round. So it is the same one every time for the same lanes, on which
    programs rely; which one is not specified.
    """
    destination, members = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    modifiers.end()
    targets = pair(destination)

    def lanes(active: Lanes, elected: Array) -> tuple[Array, Array]:
        after = active & (elected <= LANES)
        leader = int((after if after.any() else active).argmax())
        return _all(leader, np.uint32), np.asarray(leader == LANES)

    return Compute(
        tuple(zip(targets, ("b32", "pred"), strict=True)),
        ((SpecialRegister(ELECTED), "u32"),), lanes, spread="lanes", active=True, members=members,
    )  # fmt: skip


_COMBINE: dict[str, Callable[[Array], np.generic]] = {
    "add": lambda v: v.sum(dtype=v.dtype), "min": lambda v: v.min(), "max": lambda v: v.max(),
    "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
}  # fmt: skip


# min and max of f32 need sm_100a
_REDUCED = {
    "add": ("u32", "s32"), "min": ("u32", "s32", "f32"), "max": ("u32", "s32", "f32"),
    "and": ("b32",), "or": ("b32",), "xor": ("b32",),
}  # fmt: skip


@defines("redux")
def _redux(instruction: Instruction) -> Operation:
    destination, source, members = operands(instruction, 3)
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    name = modifiers.need(*_COMBINE)
    magnitude = modifiers.flag("abs")
    nan = modifiers.flag("NaN")
    kind = modifiers.need(*_REDUCED[name])
    modifiers.end()
    if kind != "f32" and (magnitude or nan):
        raise Unsupported(f"redux.{name}.{kind} has no .{'abs' if magnitude else 'NaN'}")
    combine = _COMBINE[name]
    dtype = TYPES[kind].dtype

    def lanes(active: Lanes, value: Array) -> Array:
        taken = value[active]
        if kind == "f32":
            if magnitude:
                taken = np.abs(taken)
            numbers = taken[~np.isnan(taken)]
            if len(numbers) == 0 or (nan and len(numbers) < len(taken)):
                return np.full(32, 0x7FFFFFFF, np.uint32).view(dtype)
            taken = numbers
        return np.full(32, combine(taken), dtype)

    spread: Spread = "one"
    return Compute(
        ((destination, kind),),
        ((source, kind),),
        lanes,
        spread=spread,
        active=True,
        members=members,
    )


@defines("match")
def _match(instruction: Instruction) -> Operation:
    destination, source, members = operands(instruction, 3)
    modifiers = Modifiers(instruction)
    mode = modifiers.need("any", "all")
    modifiers.need("sync")
    kind = modifiers.need("b32", "b64")
    modifiers.end()
    targets = pair(destination)
    if mode == "any" and len(targets) == 2:
        raise Unsupported("match.any has one destination")

    def lanes(active: Lanes, value: Array) -> tuple[Array, ...] | Array:
        equal = (value[:, None] == value[None, :]) & active[None, :]
        masks = np.packbits(equal, axis=1, bitorder="little").view(np.uint32)[:, 0]
        if mode == "any":
            return masks
        agree = bool((value[active] == value[active][0]).all())
        mask = _all(lane_mask(active) if agree else 0, np.uint32)
        return (mask, _all(agree, np.bool_)) if len(targets) == 2 else mask

    return Compute(
        tuple(zip(targets, ("b32", "pred"), strict=False)), ((source, kind),), lanes,
        spread="lanes", active=True, members=members,
    )  # fmt: skip
