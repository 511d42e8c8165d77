"""What the special registers of a warp hold as it starts, but for those that its lanes have
different values of.
"""

from __future__ import annotations

from math import prod

from tilepipe.ir.chip import Chip
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import World
from tilepipe.ptx.address_spaces import SYSTEM_SMEM
from tilepipe.ptx.execution.clocks import SpecialValues
from tilepipe.ptx.lanes import WARP
from tilepipe.ptx.limits import Extents
from tilepipe.ptx.placement import Placement
from tilepipe.ptx.special_registers import ELECTED

_AXES = "xyz"


def starting_values(
    agent: Agent,
    world: World,
    grid: Extents,
    block: Extents,
    cluster: Extents,
    placed: Placement,
    smem: int,
    chip: Chip,
) -> SpecialValues:
    """The values of a warp. `smem`: bytes of dynamic shared memory."""
    rank = agent.cta.rank
    places = _unravel(agent.cta.block_id // prod(cluster), _divided(grid, cluster))
    inside = _unravel(rank, cluster)
    special = SpecialValues(agent, world.chip.clock_ghz)
    values = {
        "%ntid": block,
        "%nctaid": grid,
        "%cluster_nctaid": cluster,
        "%clusterid": places,
        "%cluster_ctaid": inside,
        "%nclusterid": _divided(grid, cluster),
        "%ctaid": tuple(p * c + i for p, c, i in zip(places, cluster, inside, strict=True)),
    }
    for name, extents in values.items():
        for axis, value in zip(_AXES, extents, strict=True):
            special[f"{name}.{axis}"] = value
    smem_bytes = placed.smem_bytes
    special |= {
        "%cluster_ctarank": rank, "%cluster_nctarank": prod(cluster),
        "%warpid": agent.first_warp, "%nwarpid": -(-prod(block) // WARP),
        "%smid": agent.cta.block_id % chip.sms, "%nsmid": chip.sms,
        "%gridid": 0, "%is_explicit_cluster": int(prod(cluster) > 1),
        "%dynamic_smem_size": smem, "%total_smem_size": smem_bytes, "WARP_SZ": WARP,
        "%aggr_smem_size": smem_bytes, "%reserved_smem_offset_begin": 0,
        "%reserved_smem_offset_end": SYSTEM_SMEM, "%reserved_smem_offset_cap": SYSTEM_SMEM,
        "%envreg1": placed.workspace >> 32,
        "%envreg2": placed.workspace & 0xFFFFFFFF,
        ELECTED: world.elected,
    }  # fmt: skip
    return special


def _unravel(number: int, extents: Extents) -> Extents:
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)


def _divided(a: Extents, b: Extents) -> Extents:
    x, y, z = (i // j for i, j in zip(a, b, strict=True))
    return x, y, z
