"""The instances of a shipped kernel that are checked: few tiles of the configuration's size, on a
GPU of few SMs.

What a kernel's rings and turns do depends on how often they go round and not on the extents of the
problem, so one instance has fewer K steps than stages, and one goes round the ring of stages more
than twice; every CTA has at least two tiles, where it is persistent, and more where a ring has one
stage a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import tilepipe as tp
from tilepipe.kernels.common.tiling import OutputTiling
from tilepipe.registry.settings import Setting

SMS = 2  # CTAs of an instance, where they form no cluster


@dataclass(frozen=True, eq=False)
class Instance:
    """A program to be checked. `name`: in words. `make()` binds it, `make(stages=2)` the same
    problem with a setting changed.
    """

    name: str
    make: Callable[..., tp.Program]


@dataclass(frozen=True)
class Size:
    """How large an instance is. `extents`: settings. `clusters`: that there is room for at once."""

    extents: dict[str, Setting]
    clusters: int


Sizes = dict[str, Size]  # an instance in words -> its size


def small_chip(chip: tp.Chip, sms: int) -> tp.Chip:
    """The chip with so few SMs."""
    return replace(chip, sms=sms, clusters=())


def alone(program: tp.Program) -> tp.Program:
    """The program on a chip whose SMs hold one of its CTAs each, so that clusters that fetch their
    work find some.
    """
    launch = program.launch_args
    chip = replace(launch.chip, smem_per_cta=max(launch.kernel.smem_bytes, 1))
    return replace(program, launch_args=replace(launch, chip=chip))


def steps_of(stages: int) -> tuple[int, int]:
    """Steps of the two instances: one fewer than there are stages; twice as many, and one."""
    return max(stages - 1, 1), 2 * stages + 1


def clusters_of(cluster_size: int) -> int:
    """Clusters at once."""
    return max(SMS // cluster_size, 1)


def tiles_of_ring(stages: int) -> int:
    """Tiles that take a ring with a stage for each tile round twice and one more; two at least."""
    return max(2, 2 * stages + 1) if stages > 1 else 2


def in_words(tiles: int, what: str, steps: int, ctas: str) -> str:
    """The name of an instance: "2 tiles per CTA, 9 K steps, 2 CTAs"."""
    many, more = "s" if tiles > 1 else "", "s" if steps > 1 else ""
    return f"{tiles} tile{many} per CTA, {steps} {what}{more}, {ctas}"


def _ctas(cluster_size: int) -> str:
    return f"{SMS} CTAs" if cluster_size == 1 else f"a cluster of {cluster_size}"


def product_sizes(
    cfg: OutputTiling, step: int, *, ring: int = 1, swapped: bool = False, least: int = 0
) -> Sizes:
    """m, n and k of a product's instances.

    Args:
        step: elements of K that a CTA's stage takes, times the CTAs that share K.
        ring: stages of what goes on by one a tile. swapped: the configuration's rows run along n.
        least: steps of K that one of them has at least.
    """
    few, many = steps_of(cfg.stages)
    many = max(many, least)
    clusters, found = clusters_of(cfg.cluster_size), Sizes()
    for tiles, steps in ((tiles_of_ring(ring), few), (2, many)):
        rows, cols = clusters * cfg.bm * cfg.cluster, tiles * cfg.bn * cfg.cluster_n
        m, n = (cols, rows) if swapped else (rows, cols)
        name = in_words(tiles, "K step", steps, _ctas(cfg.cluster_size))
        found[name] = Size({"m": m, "n": n, "k": steps * step}, clusters)
    return found


def parts_sizes(cfg: OutputTiling, step: int, parts: int, *, swapped: bool = False) -> Sizes:
    """m, n and k, where parts of K of a tile meet in global memory: three tiles that one cluster
    has all parts of, so that it fills its store slots again; and one whose parts two clusters have,
    where the orders in which their warpgroups may come are few enough; else one.

    Args:
        step: elements of K of a stage. parts: of K. swapped: as of `product_sizes`.
    """
    few, many = steps_of(cfg.stages)
    size, found = cfg.cluster_size, Sizes()
    meet = SMS if size * cfg.sharers <= (4 if parts == 2 else 2) else clusters_of(size)
    for tiles, steps, clusters in ((3, few, 1), (1, many, meet)):
        rows, cols = cfg.bm * cfg.cluster, tiles * cfg.bn * cfg.cluster_n
        m, n = (cols, rows) if swapped else (rows, cols)
        what = f"{tiles} tile{'s' if tiles > 1 else ''} in {parts} parts"
        who = f"{clusters} CTA" if size == 1 else f"{clusters} cluster"
        who += ("s" if clusters > 1 else "") + (f" of {size}" if size > 1 else "")
        name = f"{what} of {steps} K step{'s' if steps > 1 else ''}, {who}"
        found[name] = Size({"m": m, "n": n, "k": steps * step * parts}, clusters)
    return found


def fetched_sizes(cfg: OutputTiling, step: int, *, ring: int = 1) -> Sizes:
    """m, n and k, where a cluster that is done takes the work of one that has not begun, through a
    ring of two answers: one cluster that does it all, and, of single CTAs, two that compete for one
    more.
    """
    few, many = steps_of(cfg.stages)
    at_once, found, size = clusters_of(cfg.cluster_size), Sizes(), cfg.cluster_size
    for clusters, tiles, steps in (
        (1, tiles_of_ring(max(ring, 2)), few),
        (at_once, at_once + 1, many),
    ):
        who = (
            f"{clusters * size} CTA{'s' if clusters * size > 1 else ''}"
            if size == 1
            else f"a cluster of {size}"
        )
        name = f"{tiles} tiles, {steps} K step{'s' if steps > 1 else ''}, fetched by {who}"
        found[name] = Size(
            {"m": tiles * cfg.bm * cfg.cluster, "n": cfg.bn * cfg.cluster_n, "k": steps * step},
            clusters,
        )
    return found


def grouped_sizes(cfg: OutputTiling, step: int, *, ring: int = 1, least: int = 0) -> Sizes:
    """m, n, k, and the rows of four groups: several tiles and a part of one, none, less than a
    tile, one row; of no group: three. `least`: steps of K that one instance has at least.
    """
    few, many = steps_of(cfg.stages)
    many = max(many, least)
    clusters, height, found = clusters_of(cfg.cluster_size), cfg.bm * cfg.cluster, Sizes()
    for tiles, steps in ((max(tiles_of_ring(ring), 3), few), (3, many)):
        rows = ((clusters * tiles - 2) * height - height // 2, 0, height - 1, 1)
        groups = f"groups of {', '.join(map(str, rows[:-1]))} and {rows[-1]} rows"
        extents: dict[str, Setting] = {
            "m": sum(rows) + 3,
            "n": cfg.bn * cfg.cluster_n,
            "k": steps * step,
            "experts": len(rows),
            "split": ",".join(map(str, rows)),
        }
        found[f"{in_words(tiles, 'K step', steps, _ctas(cfg.cluster_size))}, {groups}"] = Size(
            extents, clusters
        )
    return found


def k_grouped_sizes(cfg: OutputTiling, *, aligned: bool = False) -> Sizes:
    """m, n, k, and the elements of k of four groups: more than fills the ring of stages twice and a
    part of a K tile, none, one, and less than a K tile; of no group: three. Each CTA has a tile of
    each group. `aligned`: groups are whole K tiles, but for the last, which ends with K: none, one
    tile, and a part of one.
    """
    few, many = steps_of(cfg.stages)
    found = Sizes()
    for steps in (few, many):
        parts = (steps * cfg.bk - cfg.bk // 2, 0, 1, cfg.bk - 8)
        if aligned:
            parts = (steps * cfg.bk, 0, cfg.bk, cfg.bk - 16)
        extents: dict[str, Setting] = {
            "m": clusters_of(cfg.cluster_size) * cfg.bm * cfg.cluster,
            "n": cfg.bn * cfg.cluster_n,
            "k": sum(parts) + (0 if aligned else 3),
            "experts": len(parts),
            "split": ",".join(map(str, parts)),
        }
        at_most = f"{steps} K step{'s' if steps > 1 else ''} at most"
        rows = f"groups of {', '.join(map(str, parts[:-1]))} and {parts[-1]}"
        name = f"{len(parts)} tiles per CTA, {at_most}, {_ctas(cfg.cluster_size)}, {rows}"
        found[name] = Size(extents, clusters_of(cfg.cluster_size))
    return found


def drawn_attention_sizes(
    rows: int, keys: int, stages: int, heads: int, *, queries: int, cut: bool
) -> Sizes:
    """s_q and s_kv as of `attention_sizes`, where CTAs draw their tiles, through a ring of two
    answers: one CTA that takes them all, and two that compete for more than one each.

    Args:
        queries: tiles of queries in their ring.
        cut: queries see some keys only, as under a causal mask. The first tile of the one CTA then
            sees none; such a tile does not go through the ring.
    """
    found = Sizes()
    for ctas, least, steps in zip(
        (1, SMS), (tiles_of_ring(2), SMS + 1), steps_of(stages), strict=True
    ):
        blocks, s_kv = max(-(-least // heads), 2), steps * keys
        if cut and queries > 1 and ctas == 1:
            s_kv, blocks = blocks * rows, blocks + 1
            steps = -(-s_kv // keys)
        who = f"drawn by {ctas} CTA{'s' if ctas > 1 else ''}"
        name = f"{blocks * heads} tiles, {steps} K and V tile{'s' if steps > 1 else ''}, {who}"
        found[name] = Size({"s_q": blocks * rows, "s_kv": s_kv}, ctas)
    return found


def attention_sizes(
    rows: int, keys: int, stages: int, heads: int, *, each: int, causal: bool, ragged: bool
) -> Sizes:
    """s_q and s_kv; with a causal mask, some tiles see fewer keys.

    Args:
        rows, keys: of a tile of queries, and of keys. heads: of all batches.
        each: tiles of a CTA, at least; 1: CTAs are not persistent.
        ragged: in one of the two, the last tile of keys is not full.
    """
    blocks = max(-(-SMS * each // heads), 2 if causal else 1)
    tiles, ctas = (-(-blocks * heads // SMS), SMS) if each > 1 else (1, blocks * heads)
    return {
        in_words(tiles, "K and V tile", steps, f"{ctas} CTAs"): Size(
            {"s_q": blocks * rows, "s_kv": steps * keys - (ragged and steps > stages)}, SMS
        )
        for steps in steps_of(stages)
    }
