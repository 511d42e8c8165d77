"""Which configuration of the Hopper GEMM for which product: of those worth a try, the one that is
fastest by the model.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

import numpy as np

import tilepipe as tp
from tilepipe.kernels.common import limits, tuned
from tilepipe.kernels.common.tiling import Sm90Tiling
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.model import Problem as Problem, predicted_us, smem_bytes
from tilepipe.kernels.gemm.tiles import Shape, measured, worth_a_look
from tilepipe.kernels.gemm.times import UNIT, Table
from tilepipe.kernels.gemm.times_facts import parts_of_k

SPAN = 128  # bytes of K in a tile: a swizzle span
# Registers of a thread that an accumulator may take where the epilogue needs more than usual for a
# bias, a source or an activation, or for the scales of rows: with more, ptxas spills.
EXTRAS_ACCUMULATOR, SCALED_ACCUMULATOR = 128, 160
TALL_SOURCE_ACCUMULATOR = 96  # of 128 rows, beside a source and a bias
THREE_EXTRAS_ACCUMULATOR, THREE_SOURCE_ACCUMULATOR = 112, 88  # of each of three warpgroups
# A second store slot, and a ring for the source, are worth less than a fifth stage. Whether they
# are worth a sixth or a seventh depends on the product: both are candidates.
ENOUGH_STAGES, DEEP_STAGES, MAX_STAGES = 5, 7, 12
# Columns of tiles of 128 rows with ping-pong, of 8 bits: between those of all dtypes, for waves.
EIGHTS_OF_8_BITS = (152, 168, 184)
SOURCE_SLOTS = 2  # while one is read, TMA fills the other
# Where C has fewer elements than the first number, tiles of more than the second are not looked at:
# the model chooses none, which tests compare after each fit.
SMALL = ((1 << 14, 8192), (1 << 18, 16384))
LIMITS = tuple(limit for limit, _ in SMALL)

C = TypeVar("C", bound=Sm90Tiling)


def choose(
    m: int,
    n: int,
    k: int,
    dtype: tp.DType,
    out_dtype: tp.DType,
    *,
    batch: int = 1,
    a_order: str = "row",
    b_order: str = "row",
    scales: str = "none",
    extras: bool = False,
    source: bool = False,
    chip: tp.Chip = tp.H200,
) -> GemmConfig:
    """The configuration for a product: what tuning has remembered for it, or the one that the model
    expects to be fastest. `source`: a matrix is added that TMA can read as it writes C.
    """
    problem = Problem(m, n, k, batch, dtype, out_dtype, a_order, b_order, scales, extras, source)
    return tuned.choose(TUNABLE, problem, chip)


@functools.lru_cache(maxsize=4096)
def best(problem: Problem, chip: tp.Chip = tp.H200) -> GemmConfig:
    """The configuration that the model expects to be fastest.

    Raises:
        LimitError: the chip has no room for any.
    """
    if not _is_fitted(problem):
        found = candidates(problem, chip, 1)
        if found:
            return found[0]
    else:
        configs, table = _known(problem, chip)
        if configs:
            return configs[int(table.scores(problem).argmin())]
    raise tp.LimitError(
        f"no configuration of the GEMM fits {chip.name}, whose CTAs have"
        f" {chip.smem_per_cta:,} bytes of shared memory"
    )


def candidates(
    problem: Problem, chip: tp.Chip = tp.H200, limit: int | None = None
) -> list[GemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    return [cfg for cfg, _ in ranked(problem, chip)[:limit]]


def check(cfg: Sm90Tiling, problem: Problem, chip: tp.Chip) -> None:
    """Raises BindError where a configuration cannot be used for a product."""
    check_room(cfg, problem.dtype, chip)
    if isinstance(cfg, GemmConfig):
        for (name, order), tile, part, which in zip(
            _operands(problem, cfg),
            (cfg.bm, cfg.bn),
            cfg.copied_rows,
            ("bm and cluster_n", "bn and cluster"),
            strict=True,
        ):
            if order == "col":
                limits.check_lines(name, tile, part, which)


def check_room(cfg: Sm90Tiling, dtype: tp.DType, chip: tp.Chip) -> None:
    """Raises BindError where a CTA has not the shared memory that a configuration takes."""
    limits.check_room(smem_bytes(cfg, dtype), chip)


def ranked(problem: Problem, chip: tp.Chip = tp.H200) -> list[tuple[GemmConfig, float]]:
    """`candidates`, with the times that the model expects, microseconds: the geometric mean of
    those after a pause and in steady state.
    """
    if not _is_fitted(problem):
        allowed = (cfg for cfg in fitting(problem, chip) if _spares_registers(problem, cfg))
        times = [(cfg, predicted_us(problem, cfg, chip)) for cfg in allowed]
        return sorted(times, key=lambda pair: pair[1])
    configs, table = _known(problem, chip)
    scores = table.scores(problem)
    order = np.argsort(scores, kind="stable")
    return [(configs[i], UNIT * float(scores[i]) ** (1 / 8)) for i in order]


def _is_fitted(problem: Problem) -> bool:
    """True if it is a product of the kind that `times` was fitted to; others are chosen for by the
    older model, with the tiles that it was fitted to.
    """
    return problem.dtype.bits == 16 and problem.scales == "none"


Kind: TypeAlias = tuple[tp.DType, tp.DType, str, str, str, bool, bool]


def _kind(problem: Problem) -> Kind:
    """All of a problem but its extents."""
    p = problem
    return p.dtype, p.out_dtype, p.a_order, p.b_order, p.scales, p.extras, p.source


def _known(problem: Problem, chip: tp.Chip) -> tuple[tuple[GemmConfig, ...], Table]:
    """The configurations worth a look for a product, and what the model knows of them."""
    known = _every(_kind(problem), chip)
    return known[bisect.bisect(LIMITS, problem.m * problem.n) if problem.batch == 1 else -1]


@functools.lru_cache(maxsize=256)
def _every(kind: Kind, chip: tp.Chip) -> list[tuple[tuple[GemmConfig, ...], Table]]:
    """The configurations for all products of a kind on a chip, and what the model knows of them:
    for each size of `SMALL` those that are small enough, then all.
    """
    problem = Problem(1, 1, 1, 1, *kind)
    found = list(_measured(problem, chip))
    found.sort(key=lambda cfg: cfg.bm * cfg.bn)
    table = Table.of(found, problem, chip)
    counts = [sum(cfg.bm * cfg.bn <= largest for cfg in found) for _, largest in SMALL]
    return [(tuple(found[:count]), table.first(count)) for count in (*counts, len(found))]


def fitting(problem: Problem, chip: tp.Chip = tp.H200) -> Iterator[GemmConfig]:
    """Every configuration that the chip has room for and whose loads the operands allow."""
    tiles = _all_of_8_bits if problem.dtype.bits == 8 else _all
    every = _fitting(problem.dtype, chip, problem.source, tiles)
    new = _is_fitted(problem)
    return (
        cfg
        for cfg in every
        if _takes_orders(problem, cfg) and (new or _is_older(cfg) or _is_of_8_bits(cfg))
    )


def _measured(problem: Problem, chip: tp.Chip) -> Iterator[GemmConfig]:
    """Those of `fitting` that were measured, with splits of K that `fitting` does not have."""
    every = _fitting(problem.dtype, chip, problem.source, measured)
    return (cfg for cfg in every if _takes_orders(problem, cfg) and _spares_registers(problem, cfg))


def _is_older(cfg: GemmConfig) -> bool:
    """True if the older model was fitted to such tiles."""
    splits = cfg.split_k == 1 or (
        cfg.split_k in (2, 4) and cfg.bn % (16 * cfg.split_k) == 0 and cfg.bm * cfg.bn <= 128 * 128
    )
    splits = splits and cfg.bn % (8 * cfg.cluster) == 0
    slots = cfg.store_slots > 1 or cfg.stages <= ENOUGH_STAGES
    tiles = cfg.bn % 16 == 0 and (cfg.consumers < 3 or cfg.bn <= 192)
    return tiles and (cfg.consumers == 1 or cfg.bn >= 48) and splits and slots


def _is_of_8_bits(cfg: GemmConfig) -> bool:
    """True if it is a tile that is a candidate for 8 bits alone."""
    return cfg.schedule == "pingpong" and cfg.bm == 128 and cfg.bn in EIGHTS_OF_8_BITS


def _takes_orders(problem: Problem, cfg: GemmConfig) -> bool:
    """True if the parts of a tile that each CTA loads are whole swizzle panels where an operand is
    contiguous along M or N: narrower lines are right, and have not been measured.
    """
    pairs = zip(_operands(problem, cfg), cfg.copied_rows, strict=True)
    return all(limits.loads_panels(order, part) for (_, order), part in pairs)


def _operands(problem: Problem, cfg: GemmConfig) -> tuple[tuple[str, str], tuple[str, str]]:
    """Name and order of the operand that has the rows of a tile, and of that of its columns."""
    a, b = ("A", problem.a_order), ("B", problem.b_order)
    return (a, b) if cfg.swap == "none" else (b, a)


def _spares_registers(problem: Problem, cfg: GemmConfig) -> bool:
    """True if the accumulator leaves registers for what the epilogue does with it."""
    used = cfg.rows * cfg.bn // 128
    if problem.extras or problem.source:
        three = THREE_SOURCE_ACCUMULATOR if problem.source else THREE_EXTRAS_ACCUMULATOR
        two = TALL_SOURCE_ACCUMULATOR if problem.source and cfg.bm == 256 else EXTRAS_ACCUMULATOR
        return used <= (three if cfg.consumers == 3 else two)
    return problem.scales != "row" or cfg.swap == "ab" or used <= SCALED_ACCUMULATOR


@functools.cache
def _fitting(
    dtype: tp.DType, chip: tp.Chip, source: bool, tiles: Callable[[int], Iterable[GemmConfig]]
) -> list[GemmConfig]:
    """Every configuration of some tiles that the chip has room for."""
    found: list[GemmConfig] = []
    for each in tiles(SPAN // dtype.nbytes):
        if source and each.k_parts > 1:  # only the part that comes last reads it
            continue
        cfg = fitted(each, dtype, chip, source)
        if cfg is not None:
            found += [cfg, *deeper(cfg, dtype, chip)]
    return found


def fitted(cfg: C, dtype: tp.DType, chip: tp.Chip, source: bool = False) -> C | None:
    """The configuration with one or two store slots, with a ring for a source where there is one
    and room for it, and as many stages as the chip has room for; None where these are fewer than
    three, or no cluster fits.
    """
    if not chip.resident_clusters(cfg.cluster_size):
        return None
    best, most = cfg, 0
    for each in _with_slots(cfg, source):  # the first is preferred
        stages = stages_for(each, dtype, chip)
        if min(stages, ENOUGH_STAGES) > min(most, ENOUGH_STAGES):
            best, most = each, stages
        if most >= ENOUGH_STAGES:
            break
    return best.changed(stages=min(most, MAX_STAGES)) if most >= 3 else None


def _with_slots(cfg: C, source: bool) -> Iterator[C]:
    """The configuration with two store slots and with one, in this order; where there is a source,
    first with a ring for it.
    """
    for ring in ({"source_slots": SOURCE_SLOTS}, {}) if source else ({},):
        for count in (2, 1):
            as_it_is = not ring and cfg.store_slots == count
            yield cfg if as_it_is else cfg.changed(store_slots=count, **ring)


def deeper(cfg: C, dtype: tp.DType, chip: tp.Chip) -> list[C]:
    """The configuration with a sixth or seventh stage in the place of a store slot, if that gives
    it one and it does not split K: what a CTA stores is then a part of a tile.
    """
    split = cfg.split_k > 1 or parts_of_k(cfg) > 1
    if cfg.store_slots == 1 or split or cfg.stages >= DEEP_STAGES:
        return []
    fewer = with_one_slot(cfg, dtype, chip)
    return [fewer] if cfg.stages < fewer.stages <= DEEP_STAGES else []


def with_one_slot(cfg: C, dtype: tp.DType, chip: tp.Chip) -> C:
    """The configuration with one store slot, and the stages that then fit."""
    fewer = cfg.changed(store_slots=1)
    return fewer.changed(stages=stages_for(fewer, dtype, chip))


def stages_for(cfg: Sm90Tiling, dtype: tp.DType, chip: tp.Chip) -> int:
    """Stages that fit in shared memory, 0 where not even two do."""
    each = (cfg.bm + cfg.bn) * cfg.bk * dtype.nbytes * cfg.k_group_size
    fixed = smem_bytes(cfg, dtype) + (2 - cfg.stages) * each
    return 2 + (chip.smem_per_cta - fixed) // each if fixed <= chip.smem_per_cta else 0


@functools.cache
def _all(bk: int) -> list[GemmConfig]:
    """Every configuration worth a look, without its stages."""
    return _of(_shapes(), bk)


@functools.cache
def _all_of_8_bits(bk: int) -> list[GemmConfig]:
    """The configurations of `_all`, and ping-pong tiles of more widths, which fp8 gains by."""
    return _of([*_shapes(), *(("pingpong", 2, 128, bn) for bn in EIGHTS_OF_8_BITS)], bk)


def _of(shapes: Iterable[Shape], bk: int) -> list[GemmConfig]:
    return [
        cfg
        for shape in shapes
        for cluster in _CLUSTERS
        for swap in ("none", "ab")
        if (cfg := worth_a_look(shape, (*cluster, 1), swap, bk))
    ]


# cluster, cluster_n, split_k
_CLUSTERS = (
    (1, 1, 1),
    (2, 1, 1),
    (1, 2, 1),
    (4, 1, 1),
    (1, 4, 1),
    (1, 1, 2),
    (1, 1, 3),
    (1, 1, 4),
)


def _shapes() -> Iterator[Shape]:
    """(schedule, consumers, bm, bn)"""
    wide = (
        *range(16, 49, 8),
        *range(64, 97, 16),
        104,
        *range(112, 145, 16),
        *range(152, 201, 8),
        *range(208, 257, 16),
    )
    yield from (("cooperative", 2, 128, bn) for bn in (*wide, 320))
    yield from (("cooperative", 2, 256, bn) for bn in (*range(64, 129, 16), *range(136, 193, 8)))
    yield from (("cooperative", 3, 192, bn) for bn in (*range(64, 113, 8), *range(128, 257, 16)))
    yield from (
        ("cooperative", 1, 64, bn) for bn in (*range(16, 113, 8), 128, 136, *range(144, 257, 16))
    )
    yield from (("pingpong", 2, 128, bn) for bn in range(64, 193, 16))
    yield from (("pingpong", 2, 64, bn) for bn in range(96, 257, 32))


TUNABLE = Tunable("gemm", Problem, GemmConfig, best, candidates, check, ("activation",))
