"""Members of `ctx` that allocate shared memory and move data: ordinary loads and stores, fragments,
TMA copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.errors import TraceError
from tilepipe.ir import ops
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Extent, MatrixOrder, MulticastMask, Name, Swizzle
from tilepipe.lang.asynchronous import tma
from tilepipe.lang.asynchronous.commits import Mbar
from tilepipe.lang.fragments import memory as fragment_memory
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue
from tilepipe.lang.memory import elements
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.memory.global_tensors import GlobalTensor
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray, allocate
from tilepipe.lang.tracing.convergence import require_one_lane
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value


class TransferMembers:
    """The part of `Context` that concerns shared and global memory."""

    tracer: Tracer

    def smem(
        self,
        shape: tuple[int, int],
        dtype: object,
        *,
        count: int = 1,
        order: MatrixOrder = "row",
        swizzle: Swizzle | None = None,
        name: Name = "smem",
    ) -> SmemTileArray:
        """Allocates `count` tiles of (rows, cols) in shared memory, in set-up code.

        Args:
            order: "row": cols contiguous; "col": rows contiguous.
            swizzle: 0, 32, 64 or 128 bytes; the widest that divides the contiguous extent unless
                given.

        Raises:
            TraceError: in a role; a shape, order or swizzle that no TMA copy or MMA could use.
        """
        return allocate(self.tracer, name, count, shape, dtype, order, swizzle)

    def load(self, ref: ElementRef) -> Value:
        """Ordinary load of `tile[r, c]` or `tensor[i, j]`, by every active lane."""
        return elements.load(self.tracer, ref)

    def store(self, ref: ElementRef | SmemTile, value: object) -> None:
        """Ordinary store: of a scalar to `tile[r, c]` or `tensor[i, j]`, or of a fragment to a tile
        of its shape (stmatrix, or ordinary stores where the tile is a peer's).

        Under `per_warp`, a fragment's tile has the 16 rows for each 64 that belong to the warp.
        """
        if isinstance(ref, ElementRef):
            return elements.store(self.tracer, ref, value)
        return fragment_memory.store(self.tracer, ref, value)

    def load_global(
        self,
        tensor: GlobalTensor,
        coords: Sequence[object],
        shape: tuple[int, int],
        *,
        layout: str = "wgmma",
    ) -> Fragment:
        """A new fragment from global memory, by ordinary loads of the whole warpgroup; zero outside
        the tensor.

        Args:
            coords: one a dimension, outermost first. The last two are the first row and column of a
                fragment (m, n), the last is the first row of one (m, 1), or the first column of one
                (1, n); the others are indices.
            shape: (m, n), (m, 1) or (1, n). The dtype is the tensor's; float32 where that has 8
                bits.
            layout: "tmem" for 128 rows that are combined with a fragment from tensor memory.

        Raises:
            TraceError: not a tensor of floats, a coordinate too few, one that varies within the
                warpgroup, no such shape.
        """
        return fragment_memory.load_global(self.tracer, tensor, coords, shape, layout)

    def store_global(
        self, tensor: GlobalTensor, coords: Sequence[object], value: FragmentValue
    ) -> None:
        """Writes a fragment to global memory in the tensor's dtype, by ordinary stores; elements
        outside the tensor are dropped. For outputs that TMA cannot write. `coords` and errors: as
        in `load_global`.
        """
        fragment_memory.store_global(self.tracer, tensor, coords, value)

    def tma_load(
        self,
        tensor: GlobalTensor,
        coords: Sequence[object],
        tile: SmemTile,
        mbar: Mbar,
        multicast: MulticastMask | None = None,
    ) -> None:
        """Starts a TMA copy of the tensor's box at `coords` (elements, outermost first) into
        `tile`; its bytes are credited to `mbar`.

        Elements outside the tensor arrive as zeros, and are credited too. `multicast`: a mask of
        CTA ranks; the box lands in each, and each one's `mbar` is credited. One lane only.
        """
        tma.tma_load(self.tracer, tensor, coords, tile, mbar, multicast)

    def tma_store(
        self,
        tensor: GlobalTensor,
        coords: Sequence[object],
        tile: SmemTile,
        *,
        rows: Extent | None = None,
    ) -> None:
        """Starts a TMA copy of `tile` to the tensor at `coords`; elements outside it are
        dropped. One lane only; see tma_store_commit.

        Args:
            rows: only the first so many rows of the tile are written, none where it is 0 or less:
                for tensors whose rows belong to groups that begin anywhere. The map is
                `tensor_map(..., ragged=True)`.

        Raises:
            TraceError: rows of a map that is not ragged; tile and map do not fit together.
        """
        tma.tma_store(self.tracer, tensor, coords, tile, rows)

    def tma_store_commit(self) -> None:
        """Closes the thread's group of TMA stores."""
        require_one_lane(self.tracer, "tma_store_commit")
        self.tracer.emit(ops.TmaStoreCommit(caller()))

    def tma_store_wait(self, pending: int = 0, *, read: bool = False) -> None:
        """Waits until at most `pending` of this thread's store groups are unfinished; `read`:
        until at most so many have still to read shared memory.

        Groups belong to the thread that committed them: the same elected lane must wait.
        """
        require_one_lane(self.tracer, "tma_store_wait")
        if not isinstance(pending, int) or pending < 0:
            raise TraceError(
                f"tma_store_wait takes a static number of groups >= 0, got {pending!r}", caller()
            )
        self.tracer.emit(ops.TmaStoreWait(caller(), pending, read))
