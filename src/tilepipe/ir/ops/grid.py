"""The ops beyond the cluster: clusters of a grid sharing out their work while they run, and grids
that follow one another.
"""

from typing import Annotated

from tilepipe.ir.expressions import Local
from tilepipe.ir.facts import BINDS, READS, WRITES_ASYNC, Facts, Feature, Resource, Sync, Unit
from tilepipe.ir.memory import (
    BarrierRef,
    Tile,
)
from tilepipe.ir.ops.base import Op, declares

RESPONSE_BYTES = 16  # of a try_cancel; PTX ISA, clusterlaunchcontrol.try_cancel


@declares(
    Facts(
        ptx="clusterlaunchcontrol.try_cancel",
        unit=Unit.LAUNCH_CONTROL,
        takes=Resource.CLUSTERS,
        feature=Feature.CLUSTER_LAUNCH_CONTROL,
    )
)
class ClcTryCancel(Op):
    """clusterlaunchcontrol.try_cancel.async by one lane: asks for a cluster of this grid that has
    not started, which then never starts. Asynchronously (async proxy) writes the 16-byte response
    to `dst` and credits 16 bytes to `bar`.

    `multicast`: to the same place in each CTA of the cluster, and to each one's copy of `bar`.
    Undefined after a response that said no has been observed in this CTA.
    """

    dst: Annotated[Tile, WRITES_ASYNC]
    bar: Annotated[BarrierRef, Sync.CREDIT]
    multicast: bool


@declares(Facts(ptx="clusterlaunchcontrol.query_cancel", feature=Feature.CLUSTER_LAUNCH_CONTROL))
class ClcQuery(Op):
    """clusterlaunchcontrol.query_cancel of a response, read by every active lane with an ordinary
    load.

    `valid`: whether a cluster was cancelled; `cluster`: then its index in the grid, else nothing in
    particular.
    """

    src: Annotated[Tile, READS]
    valid: Annotated[Local, BINDS]
    cluster: Annotated[Local, BINDS]


@declares(Facts(ptx="griddepcontrol", sync=Sync.RELEASE))
class LaunchDependents(Op):
    """griddepcontrol.launch_dependents: the next kernel of the stream may start its set-up where an
    SM has room, once every CTA of this one has come here or ended. It waits for the end of this
    kernel before it touches memory.
    """


@declares(Facts(ptx="griddepcontrol", sync=Sync.WAIT))
class GridDependencyWait(Op):
    """griddepcontrol.wait: until the kernels that this one follows have ended and their memory is
    visible.

    A kernel that has one gets none at the end of set-up.
    """
