"""Settings of the kernels of rows, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.settings import Settings

WARP, WARPGROUP = 32, 128  # threads
VECTOR = 8  # columns that a thread holds together, in layout "rows:T"


@dataclass(frozen=True)
class RowConfig(Settings):
    """Static settings of a kernel of rows.

    Attributes:
        threads: of a group that share a row, a power of two up to 128. A group is a warp where they
            are at most 32, and a warpgroup otherwise. warpgroups: of a CTA.
        parts: warps of a CTA that share a row. cluster: CTAs that share a row.
        blocks: rows that a thread holds a part of.
        ctas: of an SM, for which its registers must do; where a CTA takes one row after another, as
            the backward norms do, so many run.
        ahead: rows that such a CTA loads before it has computed those before them, 1 or 2.
    """

    threads: int = 128
    warpgroups: int = 4
    parts: int = 1
    cluster: int = 1
    blocks: int = 1
    ctas: int = 1
    ahead: int = 1

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster

    @property
    def group(self) -> int:
        """Threads of a group: a warp adds up its part of a row without a barrier."""
        return WARP if self.threads <= WARP else WARPGROUP

    @property
    def groups(self) -> int:
        """Groups of a CTA."""
        return self.warpgroups * WARPGROUP // self.group

    @property
    def role(self) -> dict[str, int]:
        """The warps or warpgroups of the kernel's role."""
        return {"warps" if self.group == WARP else "warpgroups": self.groups}

    @property
    def members(self) -> int:
        """Warps that share a row; 1 where a group has its rows for itself."""
        return self.parts * self.cluster

    @property
    def teams(self) -> int:
        """Sets of groups in a CTA that have rows of their own."""
        return self.groups // self.parts

    @property
    def rows(self) -> int:
        """Rows of a group."""
        return self.group // self.threads * self.blocks

    @property
    def cta_rows(self) -> int:
        """Rows of a CTA, and of a cluster, at a time."""
        return self.rows * self.teams

    def width(self, columns: int) -> int:
        """The columns of the fragments that hold rows of `columns`, one for each member."""
        step = VECTOR * self.threads
        return -(-columns // (step * self.members)) * step

    def _rules(self) -> dict[str, bool]:
        threads, parts, cluster = self.threads, self.parts, self.cluster
        return {
            f"threads={threads} must be a power of two up to {WARPGROUP}": threads <= WARPGROUP
            and threads & (threads - 1) == 0,
            f"warpgroups={self.warpgroups} are at most 8": self.warpgroups <= 8,
            f"parts={parts} must divide the {self.groups} warps": self.members == 1
            or self.groups % parts == 0,
            f"cluster={cluster} must be a power of two up to 8": cluster <= 8
            and cluster & (cluster - 1) == 0,
            f"a row is shared by whole warps: threads={WARP} with parts or cluster above 1, not"
            f" {threads}": self.members == 1 or threads == WARP,
            f"warps that share a row have no other: blocks={self.blocks} must be 1": (
                self.members == 1 or self.blocks == 1
            ),
            f"parts={parts} must be a power of two": parts & (parts - 1) == 0,
            f"CTAs that share a row share it among all of their warps: parts={parts} must be"
            f" {self.groups}": cluster == 1 or parts == self.groups,
            f"ahead={self.ahead} is 1 or 2": self.ahead <= 2,
        }
