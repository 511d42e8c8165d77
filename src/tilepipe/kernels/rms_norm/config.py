"""Settings of the RMS norm, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.settings import Settings

WARPGROUP = 128  # threads
VECTOR = 8  # columns that a thread holds together, in layout "rows:T"
# Elements of a row that a thread holds in 64 registers, in 16 bits; in 32 bits half as many. The
# weights take as many again, or, where they are wider, twice as many.
MOST_ELEMENTS = 128


@dataclass(frozen=True)
class RmsNormConfig(Settings):
    """Static settings of the RMS norm.

    Attributes:
        threads: that share a row, a power of two up to 128. warpgroups: of a CTA.
        blocks: rows that a thread holds a part of.
    """

    threads: int = 128
    warpgroups: int = 4
    blocks: int = 1

    @property
    def rows(self) -> int:
        """Rows of a warpgroup."""
        return WARPGROUP // self.threads * self.blocks

    @property
    def cta_rows(self) -> int:
        """Rows of a CTA."""
        return self.rows * self.warpgroups

    def width(self, columns: int) -> int:
        """The columns of the fragments that hold rows of `columns`."""
        step = VECTOR * self.threads
        return -(-columns // step) * step

    def _rules(self) -> dict[str, bool]:
        threads = self.threads
        return {
            f"threads={threads} must be a power of two up to {WARPGROUP}": threads <= WARPGROUP
            and threads & (threads - 1) == 0,
            f"warpgroups={self.warpgroups} are at most 8": self.warpgroups <= 8,
        }
