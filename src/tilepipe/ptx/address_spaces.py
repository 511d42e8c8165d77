"""Where the state spaces lie among generic addresses, and in shared memory of a cluster.

A generic address names global memory unless it lies in the window of another space (PTX ISA,
"Generic Addressing"). Where the windows lie is the driver's choice; here they are far from all
allocations.

A 32-bit address of `.shared::cluster` has the rank of its CTA in the bits from 24, as on hardware:
compilers clear bit 24 to reach the barrier of the even CTA of a pair. Addresses in the window of
`.shared::cta` are those of the executing CTA in the window of the cluster.
"""

from __future__ import annotations

RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
SYSTEM_SMEM = 1024  # bytes at the start of shared memory that the system has (sm_90 and later)

# How instructions name shared memory: of the executing CTA, and of a CTA of its cluster.
SHARED_OF_CTA = ("shared", "shared::cta")
SHARED = (*SHARED_OF_CTA, "shared::cluster")

PARAM_WINDOW = 1 << 44
LOCAL_WINDOW = 1 << 45
SHARED_WINDOW = 1 << 46
WINDOW_BITS = 32
GLOBAL_START = 0x7F0000000000 & ~((1 << 21) - 1)  # of the first allocation

WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


def window_of(space: str) -> int:
    """The offset from an address of a space to the generic address: "shared", "shared::cta",
    "local", "param"; 0 for global and constant memory.
    """
    return WINDOWS.get(space.partition("::")[0], 0)
