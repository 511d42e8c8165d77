"""ProducerAhead: operands of the next stages of an input pipeline that are loaded before the
others, which must wait for something: weights, before the kernel that computes the activations has
ended.
"""

from __future__ import annotations

from functools import partial

from tilepipe.errors import HandleError, TraceError
from tilepipe.ir import ops
from tilepipe.ir.location import caller
from tilepipe.ir.memory import BarrierArray
from tilepipe.ir.program import walk
from tilepipe.lang.arguments.annotations import TransactionBytes
from tilepipe.lang.tracing.scopes import RoleState
from tilepipe.pipelines.rings.input_tiles import InputTilePipeline, ProducerTiles


class AheadTiles(ProducerTiles):
    """`with ahead.acquire() as tiles:` a stage to fill in part: TMA loads of some operands into
    `tile(j)` on `barrier()`. The producer acquires the same stage later, arms it with the bytes of
    all operands, and loads the others.

    Until then the stage's phase cannot be over: its one arrival is the producer's. Bytes may arrive
    before they are expected; the transaction count of an mbarrier is signed (PTX ISA, mbarrier:
    tx-count in -(2^20 - 1)..2^20 - 1).
    """

    how_to_release = (
        "It was obtained and never entered: use it as `with ahead.acquire() as tiles:`."
    )

    def expect_bytes(self, num_bytes: TransactionBytes) -> None:
        """Refused: the producer arms the stage.

        Raises:
            HandleError: always.
        """
        raise HandleError(
            f"{self.describe()} is acquired ahead of the producer, and armed here. The producer"
            " arms it when it acquires it in turn, `expect_bytes(inputs.stage_bytes)`, which counts"
            " what is loaded ahead, too: leave this call out.",
            caller(),
        )

    def release(self) -> None:
        """Steps to the next stage; the producer has still to acquire this one.

        Raises:
            HandleError: the body has arrived on the stage's barrier: its phase could be over before
                the producer has loaded the other operands.
        """
        self._tracer.flush_branch()
        if self.signals is not None:
            raise HandleError(
                f"{self.describe()} is acquired ahead of the producer, and signalled: its phase"
                " could be over before the producer has loaded the rest of it. Let the producer's"
                " own stage arrive.",
                caller(),
            )
        self._end()


class ProducerAhead:
    """Runs ahead of the producer of an input pipeline, from the producer's present place on, with a
    place of its own; made in the load role, before its loops.

        ahead = tp.ProducerAhead(inputs)
        for step in ctx.range(early):                      # at most as many as there are stages
            with ahead.acquire() as stage, ctx.elect_one():
                ...                                        # loads of B
        ctx.grid_dependency_wait()
        for step in ctx.range(steps):
            with producer.acquire() as stage, ctx.elect_one():
                stage.expect_bytes(inputs.stage_bytes)     # of A and B
                ...                                        # loads of A, and of B from `early` on

    It waits, as the producer does, until a stage is free. A stage of which the producer has not
    loaded the rest is never freed: more stages ahead than the ring has are a deadlock.

    Raises:
        TraceError: (at the end of the role) the role has no producer of this pipeline; a second
            one for the same pipeline; after `ctx.grid_dependency_wait()`.
    """

    def __init__(self, inputs: InputTilePipeline) -> None:
        self._inputs = inputs.copy()
        self._require_before_the_wait()
        role, full = self._role, inputs.pipeline._full
        if full in role.ahead:
            raise TraceError(
                f"role '{role.name}' has a ProducerAhead of '{inputs.name}', made at"
                f" {role.ahead[full].short}: a second one would begin with the same stages and load"
                " them again. Acquire from the first.",
                caller(),
            )
        role.ahead[full] = caller()
        self._acquires = False

    @property
    def _role(self) -> RoleState:
        return self._inputs.pipeline._tracer.role

    def _require_before_the_wait(self) -> None:
        wait = self._role.grid_wait
        if wait is not None:
            raise TraceError(
                f"ProducerAhead of '{self._inputs.name}' after ctx.grid_dependency_wait() at"
                f" {wait.short}: the kernels before this one have ended, and there is nothing to"
                " run ahead of. Acquire ahead before that call, and after it from the producer.",
                caller(),
            )

    def acquire(self) -> AheadTiles:
        """Waits for a free stage."""
        self._require_before_the_wait()
        if not self._acquires:
            self._acquires, full = True, self._inputs.pipeline._full
            self._role.at_end.append(
                partial(_require_producer, self._role, full, self._inputs.name)
            )
        return AheadTiles(self._inputs, self._inputs.pipeline._wait_empty())


def _require_producer(role: RoleState, full: BarrierArray, name: str) -> None:
    """Raises TraceError unless the role arms, or arrives on, the stages that it has acquired
    ahead.
    """
    arms = (
        op
        for op in walk(role.role.body)
        if isinstance(op, ops.MbarExpect | ops.MbarArrive) and op.bar.array is full
    )
    if next(arms, None) is None:
        raise TraceError(
            f"role '{role.name}' acquires stages of '{name}' ahead of its producer, but has none:"
            " it never arms a stage, so the phases of these stages are never over. ProducerAhead"
            " belongs to the role that has `inputs.producer()`, which acquires the same stages"
            " again, expects the bytes of all operands and loads the others.",
            role.ahead[full],
        )
