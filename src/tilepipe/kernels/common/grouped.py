"""What the kernels for groups of rows have in common: how many CTAs, and stores that leave out the
rows of the next group.
"""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.common.epilogue import Epilogue, Place
from tilepipe.kernels.common.sm90_gemm import resident_ctas
from tilepipe.kernels.common.tiling import Sm90Tiling


def grouped_grid(b: tp.TensorMap, c: tp.TensorMap, cfg: Sm90Tiling, chip: tp.Chip) -> int:
    """As many clusters as the chip holds at once, or fewer when there cannot be as many tiles: each
    group has at most one ragged; or, where each has a matrix of its own, as many as that.
    """
    height, (m, n), groups = cfg.bm * cfg.cluster, c.shape[-2:], b.shape[0]
    steps = groups * -(-m // height) if len(c.shape) == 3 else m // height + groups
    return resident_ctas(steps * -(-n // (cfg.bn * cfg.cluster_n)), cfg.cluster_size, chip)


class GroupedEpilogue(Epilogue):
    """Stores tiles that begin anywhere, without the rows that are not the group's."""

    def _row(self, tile: tp.WorkTile) -> tp.Value:
        assert isinstance(tile, tp.GroupedTile)
        return tile.row

    def _write(self, tile: tp.WorkTile, place: Place, slot: tp.SmemTile) -> None:
        assert isinstance(tile, tp.GroupedTile)
        where = (tile.batch, *place)[-self._c.rank :]
        self._ctx.tma_store(self._c, where, slot, rows=tile.end - place[0])
