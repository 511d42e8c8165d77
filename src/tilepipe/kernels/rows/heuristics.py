"""Which configuration of a kernel of rows for which rows.

Measured on an H100 (docs/performance/rows.md): what counts is that a CTA has its loads in flight at
once and that many CTAs share an SM. A row that a warp's registers do not hold well is shared by
warps, then by the CTAs of a cluster. Backward norms, which add up columns, stay and load the next
row ahead, where that takes no more registers than there are.
"""

from __future__ import annotations

from tilepipe.kernels.rows.config import VECTOR, WARP, WARPGROUP, RowConfig

NARROW = 2 * VECTOR * WARP  # columns of 16 bits: two vectors for each thread of a warp


def _warps(count: int, **settings: int) -> RowConfig:
    """So many warps for a row, which are a CTA, but for fewer than four."""
    groups = -(-count * WARP // WARPGROUP)
    return RowConfig(threads=WARP, warpgroups=groups, parts=count).changed(**settings)


_HELD = 32  # elements of 16 bits of an operand that a thread of a backward norm holds well
# (most columns of 16 bits, configuration), of each kernel. The first entry is for narrow
# rows: `_chosen` sets its threads from the columns.
_NORM = (
    (NARROW, RowConfig(warpgroups=1)),
    (1024, RowConfig(threads=64, warpgroups=2, ctas=6)),
    (4096, RowConfig(threads=WARPGROUP, warpgroups=2, ctas=5)),
    (8192, _warps(16, ctas=3)),
    (16384, _warps(16, ctas=2)),
)
_LAYER_NORM = (
    (NARROW, RowConfig(warpgroups=1)),
    (1024, RowConfig(threads=64, warpgroups=1, ctas=10)),
    (4096, RowConfig(threads=WARPGROUP, warpgroups=1)),
    (8192, _warps(8, ctas=3)),
    (16384, _warps(16, ctas=2)),
)
_SOFTMAX = (
    (NARROW, RowConfig(warpgroups=1)),
    (1024, RowConfig(threads=WARP, warpgroups=1, ctas=8)),
    (4096, _warps(8, ctas=5)),
    (8192, RowConfig(threads=WARPGROUP, warpgroups=2)),
    (16384, _warps(16, ctas=2)),
)
_SOFTMAX_BACKWARD = (
    (NARROW, RowConfig(warpgroups=1)),
    (1024, RowConfig(threads=64, warpgroups=1)),
    (8192, RowConfig(threads=WARPGROUP, warpgroups=2)),
    (16384, _warps(8)),
)
_CROSS_ENTROPY = (
    (NARROW, RowConfig(warpgroups=1)),
    (1024, RowConfig(threads=WARP, warpgroups=1, ctas=10)),
    (4096, _warps(4, ctas=8)),
    (8192, _warps(8, ctas=6)),
    (16384, _warps(8, ctas=4)),
)
_NORM_BACKWARD = (
    (NARROW, RowConfig(warpgroups=1, ctas=3, ahead=2)),
    (1024, _warps(4, ctas=6, ahead=2)),
    (4096, _warps(4, ctas=2, ahead=2)),
    (8192, _warps(8, ahead=2)),
)
_LAYER_NORM_BACKWARD = (
    (NARROW, RowConfig(warpgroups=1, ctas=3, ahead=2)),
    (1024, _warps(2, ctas=3, ahead=2)),
    (4096, _warps(8, ahead=2)),
    (8192, _warps(8)),
)


def _chosen(table: tuple[tuple[int, RowConfig], ...], columns: int, nbytes: int) -> RowConfig:
    """The entry for rows of so many columns; `nbytes`: of the widest element that stands in
    registers.
    """
    halves = columns * max(nbytes, 2) // 2
    if halves <= NARROW:
        threads = 1
        while 2 * VECTOR * threads < halves:
            threads *= 2
        return table[0][1].changed(threads=threads)
    for most, cfg in table:
        if halves <= most:
            return cfg
    return _clustered(halves, 64, _warps(16))


def _ending(table: tuple[tuple[int, RowConfig], ...], columns: int, nbytes: int) -> RowConfig:
    """The same of a kernel whose CTAs take a few rows and end. Where some columns of the fragments
    lie outside the tensor, the code for these takes registers, and fewer CTAs share an SM.
    """
    cfg = _chosen(table, columns, nbytes)
    ragged = cfg.width(columns) * cfg.members != columns
    return cfg.changed(ctas=max(cfg.ctas // 2, 1)) if ragged else cfg


def _clustered(halves: int, most: int, cfg: RowConfig) -> RowConfig:
    """A row for as many CTAs as leave each thread `most` elements of 16 bits, or all that there
    are.
    """
    cluster = 1
    while cluster < 8 and cluster * cfg.parts * most * WARP < halves:
        cluster *= 2
    return cfg.changed(cluster=cluster)


def norm(columns: int, nbytes: int) -> RowConfig:
    """The configuration of the RMS norm."""
    return _ending(_NORM, columns, nbytes)


def layer_norm(columns: int, nbytes: int) -> RowConfig:
    """The configuration of the layer norm."""
    if columns * nbytes // 2 > 16384:  # with half of the elements, it does not spill
        return _clustered(columns * nbytes // 2, 32, _warps(16))
    return _ending(_LAYER_NORM, columns, nbytes)


def softmax(columns: int, nbytes: int) -> RowConfig:
    """The configuration of the softmax."""
    return _ending(_SOFTMAX, columns, nbytes)


def softmax_backward(columns: int, nbytes: int) -> RowConfig:
    """The configuration of the gradient of the softmax."""
    if columns * nbytes // 2 > 16384:
        return _clustered(columns * nbytes // 2, 32, _warps(16))
    return _ending(_SOFTMAX_BACKWARD, columns, nbytes)


def cross_entropy(columns: int, nbytes: int) -> RowConfig:
    """The configuration of the cross entropy and its gradient."""
    return _ending(_CROSS_ENTROPY, columns, nbytes)


def norm_backward(columns: int, nbytes: int) -> RowConfig:
    """The configuration of the gradients of the RMS norm."""
    if columns * nbytes // 2 > 8192:
        ahead = _warps(8, ahead=2 if nbytes == 2 else 1)
        whole = columns % (_HELD * WARP * ahead.parts) == 0
        return _clustered(columns * nbytes // 2, _HELD if whole else _HELD // 2, ahead)
    return _chosen(_NORM_BACKWARD, columns, nbytes)


def layer_norm_backward(columns: int, nbytes: int) -> RowConfig:
    """The configuration of the gradients of the layer norm."""
    if columns * nbytes // 2 > 8192:
        return _clustered(columns * nbytes // 2, 32, _warps(8))
    return _chosen(_LAYER_NORM_BACKWARD, columns, nbytes)
