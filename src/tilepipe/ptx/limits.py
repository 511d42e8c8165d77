"""The limits of a launch of PTX: targets, extents, and what the kernel itself demands (PTX ISA,
"Performance-Tuning Directives", "Cluster Dimension Directives"; CUDA C++ Programming Guide,
"Technical Specifications per Compute Capability").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from tilepipe.errors import BindError, PtxError
from tilepipe.host_arguments import plain_int, shown
from tilepipe.ir.chip import B200, H200, Chip

Extents = tuple[int, int, int]
_MOST_CTAS = 1 << 22
_MOST_GRID = (2**31 - 1, 65535, 65535)
_MOST_BLOCK = (1024, 1024, 64)
_MOST_IN_CLUSTER = 16  # 8 without cudaFuncAttributeNonPortableClusterSizeAllowed
_BLACKWELL = ("100", "103")


def chip_of(targets: Sequence[str]) -> Chip:
    """The chip that code for these targets runs on: a Hopper also runs that for older ones.

    Raises:
        PtxError: none of those simulated does.
    """
    target = targets[0] if targets else "sm_90a"
    match = re.fullmatch(r"sm_(\d{2,3})([af]?)", target)
    if match and match[1] in _BLACKWELL:
        return B200
    if match and (match[1] == "90" or (int(match[1]) < 90 and not match[2])):
        return H200
    raise PtxError(
        f".target {target}: the simulated GPUs are an H200 (sm_90a, sm_90 and before) and a B200"
        " (sm_100a, sm_103a)"
    )


def wrong_target(opcode: str, targets: Sequence[str]) -> str:
    """Why an opcode is not one of a target's, or ""."""
    have = targets[0] if targets else ""
    if opcode == "tcgen05" and not re.fullmatch(r"sm_10[03][af]", have):
        return f"needs .target sm_100a, and this is {have}"
    if opcode == "wgmma" and have != "sm_90a":
        return f"needs .target sm_90a, and this is {have}"
    return ""


def extents(what: str, given: object) -> Extents:
    """One to three integers, as three.

    Raises:
        BindError: anything else.
    """
    single = plain_int(given)
    found = [single] if single is not None else []
    if isinstance(given, Sequence) and not isinstance(given, str):
        found = [n for n in map(plain_int, given) if n is not None]
        if len(found) != len(given):
            found = []
    if not 1 <= len(found) <= 3 or any(n < 1 for n in found):
        raise BindError(f"{what} is one to three integers of at least 1; got {shown(given)}")
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z


def check(
    directives: Mapping[str, tuple[int, ...]],
    grid: Extents,
    block: Extents,
    cluster: Extents,
    *,
    named: bool,
) -> None:
    """Refuses a launch that a GPU, or the kernel, does not take. `named`: the size of the clusters
    is given, by the launch or the kernel.

    Raises:
        BindError: it names what is broken.
    """
    threads = prod(block)
    if threads > 1024 or any(n > most for n, most in zip(block, _MOST_BLOCK, strict=True)):
        raise BindError(
            f"block {block}: {threads} threads; a CTA has 1 to 1024, at most {_MOST_BLOCK} in each"
            " dimension"
        )
    if any(n > most for n, most in zip(grid, _MOST_GRID, strict=True)):
        raise BindError(f"grid {grid}: at most {_MOST_GRID} CTAs in each dimension")
    if prod(grid) > _MOST_CTAS:
        raise BindError(
            f"grid {grid}: {prod(grid):,} CTAs; the simulated machine, which runs thousands in a"
            f" second at best, takes {_MOST_CTAS:,}"
        )
    if prod(cluster) > _MOST_IN_CLUSTER:
        raise BindError(
            f"cluster {cluster}: {prod(cluster)} CTAs; a cluster has at most {_MOST_IN_CLUSTER}"
        )
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise BindError(f"grid {grid} is not a multiple of the cluster {cluster}")
    required = _three(directives.get("reqntid"))
    if required and block != required:
        raise BindError(f"block {block}: the kernel requires {required} (.reqntid)")
    most = _three(directives.get("maxntid"))
    if most and threads > prod(most):
        raise BindError(
            f"block {block}: {threads} threads; the kernel was compiled for at most {prod(most)}"
            " (.maxntid)"
        )
    clusters = _three(directives.get("reqnctapercluster"))
    if clusters and cluster != clusters:
        raise BindError(f"cluster {cluster}: the kernel requires {clusters} (.reqnctapercluster)")
    rank = directives.get("maxclusterrank")
    if rank and prod(cluster) > rank[0]:
        raise BindError(
            f"cluster {cluster}: the kernel was compiled for at most {rank[0]} CTAs"
            " (.maxclusterrank)"
        )
    if "explicitcluster" in directives and not named:
        raise BindError("cluster: the kernel requires one to be given (.explicitcluster)")


def _three(values: Sequence[int] | None) -> Extents | None:
    if not values:
        return None
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z
