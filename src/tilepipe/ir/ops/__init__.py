"""The ops: every statement a program is made of.

A new op is one dataclass here (in the file of its subject) that declares what the op is
(`ir.facts`), one definition in `sim`, one in `cuda`, and a case that runs in both.

Execution scope is structural: an op inside `Elect` or `If(lane condition)` is executed by those
lanes only, and an arrive counts one for each of them. Every op carries `loc`, the line of the
user's kernel that caused it.
"""

from __future__ import annotations

from tilepipe.ir.ops.base import Block, Op
from tilepipe.ir.ops.control import Elect, For, If, PerWarp, While
from tilepipe.ir.ops.copies import (
    Reduction,
    TmaLoad,
    TmaReduce,
    TmaStore,
    TmaStoreCommit,
    TmaStoreWait,
)
from tilepipe.ir.ops.fragments import (
    FragmentAny,
    FragmentDefine,
    FragmentLoad,
    FragmentLoadGlobal,
    FragmentReduce,
    FragmentReduceGlobal,
    FragmentSet,
    FragmentStore,
    FragmentStoreGlobal,
)
from tilepipe.ir.ops.grid import (
    RESPONSE_BYTES,
    ClcQuery,
    ClcTryCancel,
    GridDependencyWait,
    LaunchDependents,
)
from tilepipe.ir.ops.strong_accesses import (
    Atomic,
    AtomicOperation,
    AtomicOrder,
    Fence,
    FenceOrder,
    LoadOrder,
    MemoryScope,
    StoreOrder,
    StrongLoad,
    StrongStore,
)
from tilepipe.ir.ops.synchronisation import (
    PROXY_SPACES,
    ClusterArrive,
    ClusterWait,
    FenceBarrierInit,
    FenceProxyAsync,
    MbarArrive,
    MbarCompleteTx,
    MbarExpect,
    MbarInit,
    MbarInval,
    MbarTryWait,
    MbarWait,
    NamedArrive,
    NamedSync,
    SetupBarrier,
    SyncWarp,
)
from tilepipe.ir.ops.tensor_cores import (
    Tcgen05Commit,
    Tcgen05FenceAfter,
    Tcgen05FenceBefore,
    Tcgen05Mma,
    TmemAlloc,
    TmemCopy,
    TmemDealloc,
    TmemLoad,
    TmemRelinquish,
    TmemStore,
    TmemWaitLoad,
    TmemWaitStore,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from tilepipe.ir.ops.values import (
    Assert,
    Assign,
    CursorDefine,
    CursorRead,
    CursorStep,
    Define,
    Let,
    Load,
    Print,
    Read,
    Shuffle,
    Store,
)

__all__ = [
    "PROXY_SPACES",
    "RESPONSE_BYTES",
    "Assert",
    "Assign",
    "Atomic",
    "AtomicOperation",
    "AtomicOrder",
    "Block",
    "ClcQuery",
    "ClcTryCancel",
    "ClusterArrive",
    "ClusterWait",
    "CursorDefine",
    "CursorRead",
    "CursorStep",
    "Define",
    "Elect",
    "Fence",
    "FenceBarrierInit",
    "FenceOrder",
    "FenceProxyAsync",
    "For",
    "FragmentAny",
    "FragmentDefine",
    "FragmentLoad",
    "FragmentLoadGlobal",
    "FragmentReduce",
    "FragmentReduceGlobal",
    "FragmentSet",
    "FragmentStore",
    "FragmentStoreGlobal",
    "GridDependencyWait",
    "If",
    "LaunchDependents",
    "Let",
    "Load",
    "LoadOrder",
    "MbarArrive",
    "MbarCompleteTx",
    "MbarExpect",
    "MbarInit",
    "MbarInval",
    "MbarTryWait",
    "MbarWait",
    "MemoryScope",
    "NamedArrive",
    "NamedSync",
    "Op",
    "PerWarp",
    "Print",
    "Read",
    "Reduction",
    "SetupBarrier",
    "Shuffle",
    "Store",
    "StoreOrder",
    "StrongLoad",
    "StrongStore",
    "SyncWarp",
    "Tcgen05Commit",
    "Tcgen05FenceAfter",
    "Tcgen05FenceBefore",
    "Tcgen05Mma",
    "TmaLoad",
    "TmaReduce",
    "TmaStore",
    "TmaStoreCommit",
    "TmaStoreWait",
    "TmemAlloc",
    "TmemCopy",
    "TmemDealloc",
    "TmemLoad",
    "TmemRelinquish",
    "TmemStore",
    "TmemWaitLoad",
    "TmemWaitStore",
    "Wgmma",
    "WgmmaCommit",
    "WgmmaFence",
    "WgmmaWait",
    "While",
]

# Every class of op, in the order of the alphabet.
EVERY = tuple(
    c
    for _, c in sorted(vars().items())
    if isinstance(c, type) and issubclass(c, Op) and c is not Op
)
