"""OutputPipelineConfig: the shape of a ring of accumulators."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.errors import TraceError
from tilepipe.ir.hardware import tensor_memory
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import CtaGroup, PositiveInt


@dataclass(frozen=True)
class OutputPipelineConfig:
    """The shape of an accumulator ring (the parameter `opc` of the page).

    Attributes:
        num_stages: accumulators. stage_stride_cols: 32-bit columns from one to the next.
        cta_group: CTAs that share an MMA: 1, or 2 for pairs.
    """

    num_stages: PositiveInt
    stage_stride_cols: int
    cta_group: CtaGroup = 1

    def __post_init__(self) -> None:
        numbers = {"num_stages": self.num_stages, "stage_stride_cols": self.stage_stride_cols}
        for name, n in numbers.items():
            if type(n) is not int or n < 1:
                raise TraceError(
                    f"{name} of an OutputPipelineConfig is at least 1, got {n!r}", caller()
                )
        if self.stage_stride_cols % 8:
            raise TraceError(
                f"stage_stride_cols is a multiple of 8 columns, got {self.stage_stride_cols}",
                caller(),
            )
        if type(self.cta_group) is not int or self.cta_group not in (1, 2):
            raise TraceError(
                f"cta_group is 1, or 2 for a pair of CTAs; got {self.cta_group!r}", caller()
            )
        used = self.num_stages * self.stage_stride_cols
        if used > tensor_memory.COLUMNS:
            raise TraceError(
                f"{self.num_stages} stages × {self.stage_stride_cols} columns = {used}, but"
                f" tensor memory has {tensor_memory.COLUMNS}",
                caller(),
            )

    @property
    def columns(self) -> int:
        """Columns to allocate: the power of two, at least 32, that holds the ring."""
        return max(
            tensor_memory.MIN_COLUMNS,
            1 << (self.num_stages * self.stage_stride_cols - 1).bit_length(),
        )
