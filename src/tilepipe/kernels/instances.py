"""The instances of a shipped kernel that are checked: few tiles of the configuration's size, on a GPU of few SMs.

What a kernel's rings and turns do depends on how often they go round and not on the extents of the problem, so one instance has
fewer K steps than stages, and one goes round the ring of stages more than twice; every CTA has at least two tiles, where it is
persistent, and more where a ring has one stage a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import tilepipe as tp

SMS = 2  # CTAs of an instance, where they form no cluster
Setting = int | str
Sizes = dict[str, dict[str, Setting]]  # an instance in words -> the settings of its extents


@dataclass(frozen=True, eq=False)
class Instance:
    """A program to be checked. `name`: in words. `make()` binds it, `make(stages=2)` the same problem with a setting changed."""

    name: str
    make: Callable[..., tp.Program]


class ProductTiles(Protocol):
    """What the configurations of all products have."""

    @property
    def bm(self) -> int: ...
    @property
    def bn(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def cluster(self) -> int: ...
    @property
    def cluster_n(self) -> int: ...
    @property
    def cluster_size(self) -> int: ...


def small_chip(chip: tp.Chip, cluster_size: int) -> tp.Chip:
    """The chip with SMs for one cluster, or for two CTAs."""
    return replace(chip, sms=max(SMS, cluster_size), clusters=())


def alone(program: tp.Program) -> tp.Program:
    """The program on a chip whose SMs hold one of its CTAs each, so that clusters that fetch their work find some."""
    launch = program.launch_args
    chip = replace(launch.chip, smem_per_cta=max(launch.kernel.smem_bytes, 1))
    return replace(program, launch_args=replace(launch, chip=chip))


def steps_of(stages: int) -> tuple[int, int]:
    """Steps of the two instances: one fewer than there are stages, and twice round and one more."""
    return max(stages - 1, 1), 2 * stages + 1


def clusters_of(cluster_size: int) -> int:
    """Clusters at once."""
    return max(SMS // cluster_size, 1)


def tiles_of_ring(stages: int) -> int:
    """Tiles that take a ring with a stage for each tile round twice and one more; two at least."""
    return max(2, 2 * stages + 1) if stages > 1 else 2


def in_words(tiles: int, what: str, steps: int, cluster_size: int) -> str:
    """The name of an instance: "2 tiles per CTA, 9 K steps, 2 CTAs"."""
    ctas = f"{SMS} CTAs" if cluster_size == 1 else f"a cluster of {cluster_size}"
    return f"{tiles} tile{'s' if tiles > 1 else ''} per CTA, {steps} {what}{'s' if steps > 1 else ''}, {ctas}"


def product_sizes(cfg: ProductTiles, step: int, *, ring: int = 1, swapped: bool = False, fetched: bool = False) -> Sizes:
    """m, n and k of a product's instances.

    Args:
        step: elements of K that a CTA's stage takes, times the CTAs that share K.
        ring: stages of what goes on by one a tile. swapped: the configuration's rows run along n.
        fetched: CTAs that are there fetch the tiles of those that have not begun, through a ring of two answers.
    """
    few, many = steps_of(cfg.stages)
    clusters, found = clusters_of(cfg.cluster_size), Sizes()
    for tiles, steps in ((tiles_of_ring(max(ring, 2 if fetched else 1)), few), (2, many)):
        rows, cols = clusters * cfg.bm * cfg.cluster, tiles * cfg.bn * cfg.cluster_n
        m, n = (cols, rows) if swapped else (rows, cols)
        name = in_words(tiles, "K step", steps, cfg.cluster_size) + (", tiles fetched" if fetched else "")
        found[name] = {"m": m, "n": n, "k": steps * step}
    return found


def grouped_sizes(cfg: ProductTiles, step: int, *, ring: int = 1) -> Sizes:
    """m, n, k, and the rows of four groups: several tiles and a part of one, none, less than a tile, one row; of no group: three."""
    few, many = steps_of(cfg.stages)
    clusters, height, found = clusters_of(cfg.cluster_size), cfg.bm * cfg.cluster, Sizes()
    for tiles, steps in ((max(tiles_of_ring(ring), 3), few), (3, many)):
        rows = ((clusters * tiles - 2) * height - height // 2, 0, height - 1, 1)
        groups = f"groups of {', '.join(map(str, rows[:-1]))} and {rows[-1]} rows"
        found[f"{in_words(tiles, 'K step', steps, cfg.cluster_size)}, {groups}"] = {
            "m": sum(rows) + 3, "n": cfg.bn * cfg.cluster_n, "k": steps * step, "experts": len(rows), "split": ",".join(map(str, rows)),
        }  # fmt: skip
    return found


def attention_sizes(rows: int, keys: int, stages: int, heads: int, *, persistent: bool, causal: bool) -> Sizes:
    """s_q and s_kv: two tiles a CTA where it is persistent, otherwise one; with a causal mask, some that see fewer keys.

    Args:
        rows, keys: of a tile of queries, and of keys. heads: of all batches.
    """
    wanted = SMS * (2 if persistent else 1)
    blocks = max(-(-wanted // heads), 2 if causal else 1)
    tiles = -(-blocks * heads // SMS) if persistent else 1
    found = Sizes()
    for steps in steps_of(stages):
        name = in_words(tiles, "K and V tile", steps, 1)
        if not persistent and blocks * heads > SMS:
            name = name.replace(f"{SMS} CTAs", f"{blocks * heads} CTAs")
        found[name] = {"s_q": blocks * rows, "s_kv": steps * keys}
    return found
