"""The ops by which the clusters of a grid share out their work while they run, which are part of
`ir.ops`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.memory import BarrierRef, Element, Tile, Variable
from tilepipe.ir.op import Block, Op

RESPONSE_BYTES = 16  # of a try_cancel; PTX ISA, clusterlaunchcontrol.try_cancel


@dataclass(eq=False, slots=True)
class While(Op):
    """`while var:`, a boolean variable that all threads of the agent agree on; tested before each
    iteration.
    """

    var: Variable
    body: Block


@dataclass(eq=False, slots=True)
class AtomicAdd(Op):
    """atom.relaxed.gpu.global.add by one lane, to an int32 or uint32 element; `result` is the value
    it had before.

    Relaxed: it orders nothing else. Signed sums wrap, as unsigned ones.
    """

    result: Local
    dst: Element
    value: Expr


@dataclass(eq=False, slots=True)
class ClcTryCancel(Op):
    """clusterlaunchcontrol.try_cancel.async by one lane: asks for a cluster of this grid that has
    not started, which then never starts. Asynchronously (async proxy) writes the 16-byte response
    to `dst` and credits 16 bytes to `bar`.

    `multicast`: to the same place in each CTA of the cluster, and to each one's copy of `bar`.
    Undefined after a response that said no has been observed in this CTA.
    """

    dst: Tile
    bar: BarrierRef
    multicast: bool


@dataclass(eq=False, slots=True)
class ClcQuery(Op):
    """clusterlaunchcontrol.query_cancel of a response, read by every active lane with an ordinary
    load.

    `valid`: whether a cluster was cancelled; `cluster`: then its index in the grid, else nothing in
    particular.
    """

    src: Tile
    valid: Local
    cluster: Local


@dataclass(eq=False, slots=True)
class GridDependencyWait(Op):
    """griddepcontrol.wait: until the kernels that this one follows have ended and their memory is
    visible.

    A kernel that has one gets none at the end of set-up.
    """
