"""The special registers of PTX (PTX ISA, "Special Registers"): which there are, which differ
between the lanes of a warp, and which change while it runs.
"""

from __future__ import annotations

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
}  # fmt: skip
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
    | {f"%envreg{i}" for i in range(32)}
    | {f"%pm{i}{wide}" for i in range(8) for wide in ("", "_64")}
)
DECLARED = MODELLED | _NOT_MODELLED
