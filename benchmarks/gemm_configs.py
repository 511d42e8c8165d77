"""Configurations of the GEMM in one word each, and those that are worth a try for a shape."""

from __future__ import annotations

import functools
import random
import re

import tilepipe as tp
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import (
    ENOUGH_STAGES,
    MAX_STAGES,
    Problem,
    deeper,
    fitted,
    ranked,
    with_one_slot,
)

SLOW = 1.35  # times the fastest by the model: not worth a try
_WORD = re.compile(
    r"([cp])(\d)-(\d+)x(\d+)-(\d)x(\d)x(\d)(t?)(?:-(g\d+|rows|columns))?(-o1)?(?:-s(\d+))?"
    r"(?:-k(\d+))?"
)


def text(cfg: GemmConfig) -> str:
    """A word such as "c2-128x256-2x1x1t-g16": cooperative with 2 consumers, the tile, the cluster
    along M, N and K, t where C is Cᵀ, the order of the tiles where it is not groups of 8, o1 with a
    stage in the place of the second store slot, the stages where they are more than usual, and k2
    with two parts of K that meet in global memory.
    """
    order = "" if cfg.group == 8 else f"-g{cfg.group}"
    if cfg.raster != "grouped":
        order = f"-{cfg.raster}"
    deep = "-o1" if cfg.store_slots == 1 and cfg.stages > ENOUGH_STAGES else ""
    deep += f"-s{cfg.stages}" if cfg.stages > MAX_STAGES else ""
    deep += f"-k{cfg.k_parts}" if cfg.k_parts > 1 else ""
    return (
        f"{cfg.schedule[0]}{cfg.consumers}-{cfg.bm}x{cfg.bn}-{cfg.cluster}x{cfg.cluster_n}"
        f"x{cfg.split_k}{'t' if cfg.swap == 'ab' else ''}{order}{deep}"
    )


@functools.cache
def config(word: str, chip: tp.Chip = tp.H200) -> GemmConfig:
    """The configuration of a word for bfloat16, with its stages and store slots."""
    found = _WORD.fullmatch(word)
    assert found, word
    order = found[9] or "g8"
    given = GemmConfig(
        bm=int(found[3]),
        bn=int(found[4]),
        stages=2,
        consumers=int(found[2]),
        schedule="pingpong" if found[1] == "p" else "cooperative",
        cluster=int(found[5]),
        cluster_n=int(found[6]),
        split_k=int(found[7]),
        swap="ab" if found[8] else "none",
        raster=order if order in ("rows", "columns") else "grouped",
        group=int(order[1:]) if order[0] == "g" else 8,
        k_parts=int(found[12] or 1),
    )
    made = fitted(given, tp.bfloat16, chip)
    assert made is not None, word
    if found[10]:
        # not by `deeper`: what was measured stays what it was when the candidates change
        made = with_one_slot(made, tp.bfloat16, chip)
    return made.changed(stages=int(found[11])) if found[11] else made


def worth_a_try(
    problem: Problem, chip: tp.Chip, first: int, others: int, rng: random.Random
) -> list[GemmConfig]:
    """The first tiles by the model; of the first one also C or Cᵀ, whichever it is not, and the
    number of store slots that it has not, if stages are to be had for one; and the best of some
    other classes of tiles.
    """
    times = ranked(problem, chip)
    limit = SLOW * times[0][1]
    best = times[0][0]
    firsts: dict[object, GemmConfig] = {}
    for cfg, _ in times:
        if len(firsts) < first:
            firsts.setdefault(_tiles(cfg), cfg)
    turned = best.changed(swap="none" if best.swap == "ab" else "ab")
    usual = fitted(best, problem.dtype, chip)
    assert usual is not None
    variants = [turned, *(x for x in (usual, *deeper(usual, problem.dtype, chip)) if x != best)]
    classes: dict[object, GemmConfig] = {}
    for cfg, us in times:
        if us > limit:
            break
        if cfg.bn % 32 and cfg.bn > 48:  # fewer kernels to compile
            continue
        key = cfg.schedule, cfg.consumers, cfg.bm, cfg.bn // 64, cfg.cluster_size
        classes.setdefault(key, cfg)
    rest = [cfg for cfg in classes.values() if cfg not in firsts.values()]
    # the likelier the earlier in the order of the model
    picks = sorted(rest, key=lambda cfg: rng.random() ** (1 / (1 + rest.index(cfg))))[:others]
    return list(dict.fromkeys([*firsts.values(), *variants, *picks]))


def _tiles(cfg: GemmConfig) -> object:
    """What remains of a configuration but for its stages and whether C is turned."""
    return cfg.changed(swap="none", stages=2, store_slots=1)
