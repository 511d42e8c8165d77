"""The words of the machine's messages for PTX: instructions have their own names, and only
phrases differ.
"""

from __future__ import annotations

from tilepipe.machine.wording import Wording

PTX = Wording(
    {
        "a cooperative launch": " Other work on the GPU may leave room for fewer of them, unless"
        " the launch is cooperative: bind(..., cooperative=True).",
        "a multicast mask": "a mask of CTAs (.multicast::cluster)",
        "a predicate": "a predicate (@p)",
        "elect.sync in a warp": "a branch on elect.sync",
        "mbarrier.arrive on a peer": "mbarrier.arrive.shared::cluster at an address from mapa",
        "a relaxed arrive": " One whose arrive is .relaxed orders no access before it.",
        "mov of 0": "mov 0",
        "scale-d false": "a false scale-d (wgmma) or enable-input-d (tcgen05.mma)",
    }
)
