"""The PTX instructions: a definition for each opcode, by subject. The modules register
their definitions when they are imported, which this package does.
"""

from tilepipe.ptx.isa import (
    arithmetic as arithmetic,
    atomics as atomics,
    barriers as barriers,
    bits as bits,
    calls as calls,
    comparison as comparison,
    control as control,
    conversion as conversion,
    copies as copies,
    fences as fences,
    launch_control as launch_control,
    matrices as matrices,
    mbarriers as mbarriers,
    memory as memory,
    moves as moves,
    tcgen05 as tcgen05,
    tensor_maps as tensor_maps,
    video as video,
    warp as warp,
    wgmma as wgmma,
    wmma as wmma,
)
