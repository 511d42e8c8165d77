"""Chips: the limits that a kernel must keep, and the figures for the cost model and grids. Targets
of a compilation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar

from tilepipe.errors import BindError
from tilepipe.host_arguments import require_int, require_number, shown

HOPPER, BLACKWELL = "sm_90a", "sm_100a"

# Target of a compilation -> the generation whose ops it has. What has neither wgmma nor tcgen05 is
# for all of them. A cubin of sm_100a runs on compute capability 10.0 alone, one of sm_103a on 10.3
# alone; one of sm_100f on both, of sm_103f on 10.3 and what follows in its family. All four have
# every op that is printed here (PTX ISA, "Target ISA Notes" of tcgen05.mma: a family target lacks
# kind::i8 and the spelling .scale_vec, sm_103a kind::i8). No Blackwell target has been run.
TARGETS = {HOPPER: HOPPER, **dict.fromkeys((BLACKWELL, "sm_100f", "sm_103a", "sm_103f"), BLACKWELL)}
ARCHITECTURES = tuple(TARGETS)
# Of an mbarrier (PTX ISA, "Contents of the mbarrier object")
MAX_COUNT = 2**20 - 1  # arrivals that one phase expects, from 1
MAX_TX_BYTES = 2**20 - 1  # bytes announced or delivered in one phase (tx-count), from 0


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": 9.0, 10.x
THREADS_PER_SM = 2048
CTAS_PER_SM = 32


# As the drivers of H200s count them (`tilepipe.cuda.runtime.driver.chip`). Which SMs are switched
# off differs between cards: of clusters of 8, one had room for 14 and another for 15.
H200_CLUSTERS = ((2, 66), (3, 39), (4, 30), (5, 22), (6, 17), (7, 15), (8, 14))


@dataclass(frozen=True, slots=True)
class Chip:
    """One GPU model.

    Attributes:
        arch: the architecture kernels are compiled for.
        sms: streaming multiprocessors.
        smem_per_cta: shared memory a CTA may use, bytes (CUDA C++ Programming Guide, compute
            capability 9.0: 227 KB).
        registers: 32-bit registers of an SM.
        max_threads: threads of a CTA.
        max_cluster: CTAs of a portable cluster.
        clusters: (CTAs of a cluster, clusters resident at once) with one CTA on each SM. SMs come
            in groups of 16 or 18, and a cluster stays within one.
        clock_ghz: sustained SM clock, for the cost model.
        dram_gbps: memory bandwidth, GB/s, for the cost model.
        max_tx_bytes: bytes that an mbarrier counts in one phase, on every chip.
    """

    max_tx_bytes: ClassVar[int] = MAX_TX_BYTES

    name: str = "H200"
    arch: str = HOPPER
    sms: int = 132
    smem_per_cta: int = 227 * 1024
    registers: int = 64 * 1024
    max_threads: int = 1024
    max_cluster: int = 8
    named_barriers: int = 16
    clusters: tuple[tuple[int, int], ...] = H200_CLUSTERS
    clock_ghz: float = 1.6
    dram_gbps: float = 4300.0

    def __hash__(self) -> int:
        return hash(self.name)  # of all fields takes five times as long, at each look-up in a cache

    def __post_init__(self) -> None:
        for field in fields(self):
            value, what = getattr(self, field.name), f"{field.name} of a Chip"
            if field.type == "int":
                require_int(value, what, 1)
            elif field.type == "float" and not 0 < require_number(value, what) < math.inf:
                raise BindError(f"{what} is a number above 0; got {shown(value)}")
            elif field.type == "str" and not (isinstance(value, str) and value.strip()):
                raise BindError(f"{what} is a text, such as {field.default!r}; got {shown(value)}")
        pairs = self.clusters if isinstance(self.clusters, tuple) else (self.clusters,)
        if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
            raise BindError(
                "clusters of a Chip are pairs (CTAs of a cluster, clusters resident at once); got"
                f" {shown(self.clusters)}"
            )
        for size, resident in pairs:
            require_int(size, "a cluster's CTAs, in the clusters of a Chip,", 1)
            require_int(resident, "the resident clusters of a Chip", 0)  # a part of a GPU has none

    def resident_clusters(self, size: int) -> int:
        """Clusters of `size` CTAs that run at once with one CTA on each SM: the most that a
        persistent grid should have.
        """
        size = require_int(size, "size of a cluster", 1)
        return dict(self.clusters).get(size, self.sms // size)

    def occupancy(self, smem_bytes: int, threads: int) -> int:
        """CTAs that an SM holds at once, at least 1, by their shared memory and threads; registers
        may leave room for fewer.
        """
        by_smem = self.smem_per_cta // max(smem_bytes, 1)
        return max(1, min(by_smem, THREADS_PER_SM // max(threads, 1), CTAS_PER_SM))


H200 = Chip()
# Blackwell's figures are NVIDIA's own (DGX B200 data sheet, tuning guide): no such GPU has been
# measured.
B200 = Chip("B200", BLACKWELL, sms=148, clusters=(), clock_ghz=1.85, dram_gbps=7700.0)

# What kernels are built against for a target, where no GPU says. Compute capability 10.3 has the
# limits of 10.0 (CUDA Programming Guide, "Compute Capabilities"); its other figures are of no
# consequence to what is compiled.
CHIPS = {target: H200 if home == HOPPER else B200 for target, home in TARGETS.items()}


def generation(arch: str) -> str:
    """The architecture for which ops, chips and shipped kernels are stated: sm_100a of sm_103f.

    Raises:
        BindError: `arch` is none of `ARCHITECTURES`.
    """
    found = TARGETS.get(arch) if isinstance(arch, str) else None
    if found is None:
        raise BindError(f"unknown architecture {arch!r}; known: {', '.join(ARCHITECTURES)}")
    return found
