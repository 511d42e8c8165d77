"""Tensor memory of a block-scaled kernel: accumulators, and the scale factors of the present
tiles.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.hardware import tensor_memory
from tilepipe.ir.hardware.tensor_memory import PIECE_COLUMNS
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Name
from tilepipe.lang.context.context import Context
from tilepipe.lang.tensor_memory.tensors import TmemScales
from tilepipe.pipelines.accumulators.output_stages import OutputPipelineConfig
from tilepipe.pipelines.accumulators.tensor_memory import TmemAllocation
from tilepipe.pipelines.rings.payloads import BlockScaledTilePayload
from tilepipe.pipelines.rings.tile_arrays import scale_factor_k_major


def scale_columns(shape: tuple[int, int]) -> int:
    """32-bit columns of the scale factors (rows, blocks of K): 4 for each piece of 128 rows × 4
    blocks.
    """
    layout = scale_factor_k_major(*shape)
    return PIECE_COLUMNS * layout.row_pieces * layout.k_pieces


class BlockScaledTmem(TmemAllocation):
    """The columns of a block-scaled kernel: accumulators | SFA | SFB.

    The accumulators are an `OutputTilePipeline`'s: `OutputTilePipeline.allocate(ctx, config,
    tmem=...)`. There is room for the scale factors of one K tile: copies to tensor memory and MMAs
    of one lane are executed in the order in which it issues them, so those of the next tile are
    copied to the same columns. (The PTX ISA guarantees this for an MMA after its copies; for a copy
    after an MMA it is the practice of kernels for this hardware. No Blackwell GPU has run ours.)

    Attributes:
        num_accum_stages, stage_stride_cols: of the accumulators. sfa_offset, sfb_offset: first
            columns. sfa_cols, sfb_cols: how many.
    """

    def __init__(
        self,
        ctx: Context,
        config: OutputPipelineConfig,
        payload: BlockScaledTilePayload,
        *,
        name: Name = "tmem",
    ) -> None:
        """Made in set-up code; `config` gives the columns of the accumulators, `payload` the shapes
        and types of the scale factors.

        Raises:
            TraceError: accumulators and scale factors need more than 512 columns.
        """
        self.num_accum_stages, self.stage_stride_cols = config.num_stages, config.stage_stride_cols
        self._payload = payload
        self.sfa_cols, self.sfb_cols = (
            scale_columns(payload.sfa_shape),
            scale_columns(payload.sfb_shape),
        )
        self.sfa_offset = config.num_stages * config.stage_stride_cols
        self.sfb_offset = self.sfa_offset + self.sfa_cols
        used = self.sfb_offset + self.sfb_cols
        if used > tensor_memory.COLUMNS:
            raise TraceError(
                f"{config.num_stages} accumulators × {config.stage_stride_cols} columns +"
                f" {self.sfa_cols} of SFA + {self.sfb_cols} of SFB = {used}, but tensor memory has"
                f" {tensor_memory.COLUMNS}: fewer accumulators, a smaller n, or a K tile of fewer"
                " blocks",
                caller(),
            )
        super().__init__(
            ctx,
            max(tensor_memory.MIN_COLUMNS, 1 << (used - 1).bit_length()),
            cta_group=config.cta_group,
            name=name,
        )

    def sfa(self) -> TmemScales:
        """The scale factors of A."""
        return self.scales(self._payload.sfa_shape, self._payload.sfa_type, self.sfa_offset)

    def sfb(self) -> TmemScales:
        """The scale factors of B."""
        return self.scales(self._payload.sfb_shape, self._payload.sfb_type, self.sfb_offset)
