"""What the roles of a kernel read before and after they wait for the kernel before it."""

from __future__ import annotations

import re

import tilepipe as tp


def around_the_wait(program: tp.Program) -> dict[str, tuple[set[str], set[str]]]:
    """For each role that waits for the kernel before: what it reads before that, and after."""
    reads = re.compile(r"(?:tma_load tensor=|load_global \S+ |= load )(\w+)")
    roles = {}
    for role in str(program).split("role ")[1:]:
        before, wait, after = role.partition("grid_dependency_wait")
        if wait:
            roles[role[: role.index(":")]] = set(reads.findall(before)), set(reads.findall(after))
    return roles
