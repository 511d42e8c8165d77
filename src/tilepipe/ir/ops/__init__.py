"""The ops: every statement a program is made of.

A new op is one dataclass here (in the file of its subject) that declares what the op is
(`ir.ops.facts`), one definition in `sim`, one in `cuda`, and a case that runs in both.

Execution scope is structural: an op inside `Elect` or `If(lane condition)` is executed by those
lanes only, and an arrive counts one for each of them. Every op carries `loc`, the line of the
user's kernel that caused it.
"""

from __future__ import annotations

from tilepipe.ir.ops.barriers import MbarArrive as MbarArrive
from tilepipe.ir.ops.barriers import MbarCompleteTx as MbarCompleteTx
from tilepipe.ir.ops.barriers import MbarExpect as MbarExpect
from tilepipe.ir.ops.barriers import MbarInit as MbarInit
from tilepipe.ir.ops.barriers import MbarInval as MbarInval
from tilepipe.ir.ops.barriers import MbarTryWait as MbarTryWait
from tilepipe.ir.ops.barriers import MbarWait as MbarWait
from tilepipe.ir.ops.base import Block as Block
from tilepipe.ir.ops.base import Op as Op
from tilepipe.ir.ops.control import Elect as Elect
from tilepipe.ir.ops.control import For as For
from tilepipe.ir.ops.control import If as If
from tilepipe.ir.ops.control import PerWarp as PerWarp
from tilepipe.ir.ops.control import While as While
from tilepipe.ir.ops.copies import TmaLoad as TmaLoad
from tilepipe.ir.ops.copies import TmaStore as TmaStore
from tilepipe.ir.ops.copies import TmaStoreCommit as TmaStoreCommit
from tilepipe.ir.ops.copies import TmaStoreWait as TmaStoreWait
from tilepipe.ir.ops.debugging import Assert as Assert
from tilepipe.ir.ops.debugging import Print as Print
from tilepipe.ir.ops.fragments import FragmentAny as FragmentAny
from tilepipe.ir.ops.fragments import FragmentDefine as FragmentDefine
from tilepipe.ir.ops.fragments import FragmentLoad as FragmentLoad
from tilepipe.ir.ops.fragments import FragmentLoadGlobal as FragmentLoadGlobal
from tilepipe.ir.ops.fragments import FragmentReduce as FragmentReduce
from tilepipe.ir.ops.fragments import FragmentSet as FragmentSet
from tilepipe.ir.ops.fragments import FragmentStore as FragmentStore
from tilepipe.ir.ops.fragments import FragmentStoreGlobal as FragmentStoreGlobal
from tilepipe.ir.ops.grid import RESPONSE_BYTES as RESPONSE_BYTES
from tilepipe.ir.ops.grid import ClcQuery as ClcQuery
from tilepipe.ir.ops.grid import ClcTryCancel as ClcTryCancel
from tilepipe.ir.ops.grid import GridDependencyWait as GridDependencyWait
from tilepipe.ir.ops.grid import LaunchDependents as LaunchDependents
from tilepipe.ir.ops.lanes import Shuffle as Shuffle
from tilepipe.ir.ops.memory import AtomicAdd as AtomicAdd
from tilepipe.ir.ops.memory import Load as Load
from tilepipe.ir.ops.memory import Store as Store
from tilepipe.ir.ops.synchronisation import PROXY_SPACES as PROXY_SPACES
from tilepipe.ir.ops.synchronisation import ClusterArrive as ClusterArrive
from tilepipe.ir.ops.synchronisation import ClusterWait as ClusterWait
from tilepipe.ir.ops.synchronisation import FenceBarrierInit as FenceBarrierInit
from tilepipe.ir.ops.synchronisation import FenceProxyAsync as FenceProxyAsync
from tilepipe.ir.ops.synchronisation import NamedArrive as NamedArrive
from tilepipe.ir.ops.synchronisation import NamedSync as NamedSync
from tilepipe.ir.ops.synchronisation import SetupBarrier as SetupBarrier
from tilepipe.ir.ops.synchronisation import SyncWarp as SyncWarp
from tilepipe.ir.ops.tcgen05 import Tcgen05Commit as Tcgen05Commit
from tilepipe.ir.ops.tcgen05 import Tcgen05FenceAfter as Tcgen05FenceAfter
from tilepipe.ir.ops.tcgen05 import Tcgen05FenceBefore as Tcgen05FenceBefore
from tilepipe.ir.ops.tcgen05 import Tcgen05Mma as Tcgen05Mma
from tilepipe.ir.ops.tcgen05 import TmemAlloc as TmemAlloc
from tilepipe.ir.ops.tcgen05 import TmemCopy as TmemCopy
from tilepipe.ir.ops.tcgen05 import TmemDealloc as TmemDealloc
from tilepipe.ir.ops.tcgen05 import TmemLoad as TmemLoad
from tilepipe.ir.ops.tcgen05 import TmemRelinquish as TmemRelinquish
from tilepipe.ir.ops.tcgen05 import TmemStore as TmemStore
from tilepipe.ir.ops.tcgen05 import TmemWaitLoad as TmemWaitLoad
from tilepipe.ir.ops.tcgen05 import TmemWaitStore as TmemWaitStore
from tilepipe.ir.ops.values import Assign as Assign
from tilepipe.ir.ops.values import CursorDefine as CursorDefine
from tilepipe.ir.ops.values import CursorRead as CursorRead
from tilepipe.ir.ops.values import CursorStep as CursorStep
from tilepipe.ir.ops.values import Define as Define
from tilepipe.ir.ops.values import Let as Let
from tilepipe.ir.ops.values import Read as Read
from tilepipe.ir.ops.wgmma import Wgmma as Wgmma
from tilepipe.ir.ops.wgmma import WgmmaCommit as WgmmaCommit
from tilepipe.ir.ops.wgmma import WgmmaFence as WgmmaFence
from tilepipe.ir.ops.wgmma import WgmmaWait as WgmmaWait

# Every class of op, in the order of the alphabet.
EVERY = tuple(
    c
    for _, c in sorted(vars().items())
    if isinstance(c, type) and issubclass(c, Op) and c is not Op
)
