"""Which configuration of the RMS norm for which rows.

Measured on an H200: what counts is that a CTA has its loads in flight at once and that many CTAs
share an SM. CTAs that stay and take more rows, with or without loading ahead, were slower.
"""

from __future__ import annotations

from tilepipe.kernels.rms_norm.config import VECTOR, WARPGROUP, RmsNormConfig

WARP = 32  # threads
# (most columns of 16 bits, threads of a row, warpgroups)
_MEASURED = ((1024, 64, 1), (8192, WARPGROUP, 4))


def best(columns: int, nbytes: int) -> RmsNormConfig:
    """The configuration for rows of so many columns; `nbytes`: of the wider of the elements of x
    and of the weights, which stand in registers, too.
    """
    halves = columns * max(nbytes, 2) // 2
    if halves <= 2 * VECTOR * WARP:  # two vectors a thread, or fewer
        threads = 1
        while 2 * VECTOR * threads < halves:
            threads *= 2
        return RmsNormConfig(threads=threads, warpgroups=1)
    for most, threads, warpgroups in _MEASURED:
        if halves <= most:
            return RmsNormConfig(threads=threads, warpgroups=warpgroups)
    return RmsNormConfig(threads=WARPGROUP, warpgroups=1)
