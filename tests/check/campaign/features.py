"""What a generated kernel can have in it, and how often."""

from __future__ import annotations

from random import Random

# Name of a feature -> how often it is drawn.
FEATURES: dict[str, float] = {
    "peek": 0.45,  # a try_wait whose answer branches, guards a wait, is selected on or stored
    "poll": 0.35,  # a loop of tests
    "counter": 0.3,  # a loop of tests that gives up by a counter in shared or global memory
    "fragment": 0.4,  # values in fragments: stored, loaded, decided on
    # global memory by ordinary accesses: stored and loaded, as elements or fragments
    "global": 0.45,
    "tma": 0.45,  # copies to shared memory, or from it
    "atomic": 0.15,  # tickets and flags by atomic adds
    "cluster": 0.15,  # two CTAs that fill each other's slots, or one that fills both's
    "again": 0.15,  # an mbarrier that begins a second life in a role
    "elected": 0.2,  # what one elected lane leaves for itself
    "four": 0.12,  # a role of four warps
}
TESTING = ("peek", "poll", "counter")


def draw(r: Random, required: frozenset[str] = frozenset()) -> frozenset[str]:
    """A set of features that fit together, `required` among them."""
    chosen = {name for name, often in FEATURES.items() if r.random() < often} | required
    if "four" in chosen and "fragment" in chosen and r.random() < 0.5 and "four" not in required:
        chosen.discard("four")
    if "atomic" in chosen and "atomic" not in required and len(chosen & set(TESTING)) > 1:
        chosen.discard("atomic")
    testing = [name for name in TESTING if name in chosen]
    if chosen & {"cluster", "four"} and testing:  # they take long to explore
        kept = [name for name in testing if name in required] or [r.choice(testing)]
        chosen -= set(testing) - set(kept)
        spare = sorted(chosen - required - set(kept) - {"cluster", "four"})
        chosen -= set(spare) - set(r.sample(spare, min(len(spare), 1)))
        if {"cluster", "four"} <= chosen and not {"cluster", "four"} <= required:
            chosen.discard("cluster" if "four" in required else "four")
    return frozenset(chosen)
