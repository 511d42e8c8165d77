"""Lanes of a warp that stand where they do until others of it have come: of a deadlock, what a
front end says of them.
"""

from __future__ import annotations

from typing import NamedTuple


class SeparatedLanes(NamedTuple):
    """Lanes of an agent that wait for other lanes of it.

    Attributes:
        lanes: as a mask of the agent's threads. at: where they stand, or meet the others:
            `kernel.cu:12 (bar.warp.sync -1)`.
        reaches: the numbers of the sites that they may come to from there, without the wait of the
            others.
    """

    lanes: int
    at: str
    reaches: frozenset[int]
