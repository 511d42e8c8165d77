"""The special registers of PTX (PTX ISA, "Special Registers"): which there are, which differ
between the lanes of a warp, and which change while it runs.
"""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.lanes import LANES, WARP, Array

# The lanes of a warp have different values of these.
LANE_REGISTERS = frozenset(
    {
        "%tid", "%laneid", "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge",
        "%lanemask_gt",
    }
)  # fmt: skip
# Each reading of these may give another value.
CLOCKS = frozenset(
    {
        "%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi",
    }
)  # fmt: skip
# A value for each dimension: `%ntid.x`.
OF_DIMENSIONS = frozenset(
    {
        "%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid",
        "%cluster_nctaid",
    }
)  # fmt: skip
# All that are modelled.
MODELLED = LANE_REGISTERS | CLOCKS | OF_DIMENSIONS | {
    "%cluster_ctarank", "%cluster_nctarank", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid",
    "%is_explicit_cluster", "%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size",
    "%reserved_smem_offset_begin", "%reserved_smem_offset_end", "%reserved_smem_offset_cap",
    "WARP_SZ",
    # the address of the workspace of a cooperative launch, upper half first, in which
    # this_grid().sync() counts arrivals (CUDA, cooperative_groups/details/driver_abi.h)
    "%envreg1", "%envreg2",
}  # fmt: skip
ELECTED = "the elected lane"  # no register of PTX: what elect.sync asks the machine
_WIDTHS = {
    "%clock64": (64,), "%globaltimer": (64,), "%gridid": (16, 32, 64), "%is_explicit_cluster": (1,),
    **dict.fromkeys(("%tid", "%ntid", "%ctaid", "%nctaid"), (16, 32)),
}  # fmt: skip


def widths(name: str) -> tuple[int, ...]:
    """The bits of the types that a special register may be read in."""
    return _WIDTHS.get(name, (32,))


# Those that a debugger, a profiler, the driver or a graph sets.
_NOT_MODELLED = (
    {"%current_graph_exec"}
    | {f"%envreg{i}" for i in range(32) if i not in (1, 2)}
    | {f"%pm{i}{wide}" for i in range(8) for wide in ("", "_64")}
)
DECLARED = MODELLED | _NOT_MODELLED


def lane_values(block: tuple[int, int, int], warp: int) -> dict[str, Array]:
    """The registers that differ between lanes, in one warp of a CTA, by name."""
    number = warp * WARP + LANES
    x, y, _ = block
    bits = np.uint32(1) << LANES
    found = {
        "%tid.x": number % x, "%tid.y": number // x % y, "%tid.z": number // (x * y),
        "%laneid": LANES, "%lanemask_eq": bits, "%lanemask_lt": bits - np.uint32(1),
        "%lanemask_le": bits | (bits - np.uint32(1)),
        "%lanemask_gt": ~(bits | (bits - np.uint32(1))), "%lanemask_ge": ~(bits - np.uint32(1)),
    }  # fmt: skip
    return {name: values.astype(np.uint32) for name, values in found.items()}
