"""Stores of one value by several warps that nothing orders, which practice does not refuse.

By the PTX ISA two conflicting stores that nothing orders are a data race, whatever they write.
Compilers rely on less: Triton's warp-specialised kernels let four warps store the same state by
one instruction. So two stores by one instruction of different warps may race where they store
equal bytes. What each has stored is compared, not what memory holds: the answer must not depend on
which of them comes first, because a check does not try every order of ordinary stores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_sets import Bytes, LaneBytes
from tilepipe.machine.rules import ONE_VALUE


def excused(m: Machine, old: Access, new: Access) -> bool:
    """True if two accesses that nothing orders are such stores, and the rules allow them."""
    if old.site is not new.site or old.agent is new.agent or m.world.asks(ONE_VALUE):
        return False
    if old.stored is None or new.stored is None or not _equal(old, new):
        return False
    if not m.world.advised(ONE_VALUE, old.site, new.site):
        m.world.finding(
            ONE_VALUE,
            f"{new.site.what}: {old.agent} and {new.agent} store the same value to some byte of"
            " shared memory, and nothing orders them",
            new.site.loc,
            "Let one of them store it, or order them. If they are to store to different places,"
            " check with data of which no two elements are equal, such as np.arange: two different"
            " values would be a race.",
        )
    return True


def keeps(m: Machine, old: Access, new: Access) -> bool:
    """True if a store must be compared with those to come although a later one by the same
    instruction has stored something else to some, or all, of its bytes: another warp that knows of
    neither could store what `new` stores. Then what it stored is part of a state's key, too, since
    memory does not tell.
    """
    if old.stored is None or new.stored is None or old.site is not new.site:
        return False
    if m.world.asks(ONE_VALUE) or _equal(old, new):
        return False
    old.superseded = any(
        agent is not old.agent
        and not agent.done
        and not old.bit & agent.known((1 << 32 * agent.warps) - 1)
        for agent in m.agents
    )
    return old.superseded


def _equal(old: Access, new: Access) -> bool:
    """True if two stores store the same to each byte that they have in common."""
    here, values = _bytes_of(old)
    there, others = _bytes_of(new)
    _, mine, theirs = np.intersect1d(here, there, return_indices=True)
    return bool(np.array_equal(values[mine], others[theirs]))


def _bytes_of(store: Access) -> tuple[npt.NDArray[np.int64], Bytes]:
    """Address and value of each byte that a store by lanes stores."""
    assert isinstance(store.points, LaneBytes)
    assert store.stored is not None
    first = np.asarray([address for _, address, _ in store.points.lanes], np.int64)
    nbytes = store.stored.shape[1]
    return (first[:, None] + np.arange(nbytes)).reshape(-1), store.stored.reshape(-1)
