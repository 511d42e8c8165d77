"""TMAProducerPipeline and TMAConsumerPipeline: the two sides of a ring of K or V tiles that TMA
fills and MMAs read.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Index, Predicate
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.pipelines.attention.tile_layouts import TMADestination
from tilepipe.pipelines.attention.tile_pipeline import TilePipeline
from tilepipe.pipelines.barriers.pairs import truth


class TMAProducerPipeline(TilePipeline):
    """The load warp's side (API page TMAProducerPipeline): `acquire`, `get_tile(e=1)`, a copy, for
    each part; then `commit_step`.

    Its state starts at phase 1, so that the first lap does not wait. `expect_bytes` is the one
    arrival of a part; where one announcement covers more than the part (Q and the first K, for
    instance), call `get_tile` without `e` and expect the total on its `mbar`.
    """

    PairType = TMADestination
    KPairType = TMADestination
    SMemType = SmemTile

    def _phase(self) -> int:
        return 1

    def get_smem(self, *, qk_stage: int = 0) -> SmemTile:
        """Part `qk_stage` of the present stage: tile index · num_qk_stages_effective + qk_stage."""
        return self._tile(self.pipeline.state.index(), qk_stage)

    def get_tile(self, e: Predicate | None = None, *, qk_stage: int = 0) -> TMADestination:
        """Part `qk_stage` of the present stage, and its full barrier. With `e`, where it is not 0,
        `tile_bytes` are expected there by one lane: pass `e=1` under `ctx.elect_one()`.
        """
        index = self.pipeline.state.index()
        mbar = self.pipeline.producer_mbar(index, qk_stage=qk_stage)
        pair = TMADestination(mbar, self._tile(index, qk_stage))
        if isinstance(e, int):
            if e:
                mbar.expect_bytes(self.tile_bytes)
        elif e is not None:
            with Context(self.pipeline._tracer).when(truth(self.pipeline._tracer, e)):
                mbar.expect_bytes(self.tile_bytes)
        return pair

    def acquire(self, *, qk_stage: int = 0) -> None:
        """Waits until the consumer has freed the part; passes at once on the first lap."""
        self.pipeline.producer_acquire(qk_stage=qk_stage)

    def commit_step(self) -> None:
        """Steps to the next stage without a signal: the bytes of the copies complete the phases."""
        self.pipeline.state.step()

    def drain(self) -> None:
        """Waits until every stage has been freed: after the last stage, before the role ends. Once
        for a ring that K and V share.

        Raises:
            TraceError: the other view of the ring is drained in this role already.
        """
        role = self.pipeline._tracer.role
        first = self.pipeline._drained.setdefault(role, (self.is_k, caller()))
        if self.config.use_fused_kv and first[0] is not self.is_k:
            raise TraceError(
                f"'{self.pipeline.name}' is drained at {first[1].short} already: K and V share this"
                " ring, and a second drain would wait for tiles that are never loaded. Drain one of"
                " the two views.",
                caller(),
            )
        self.pipeline.drain_producer()

    def get_k_smem(self, *, qk_stage: int) -> SmemTile:
        """`get_smem` of K."""
        self._only("get_k_smem", True)
        return self.get_smem(qk_stage=qk_stage)

    def get_k(self, e: Predicate | None = None, *, qk_stage: int) -> TMADestination:
        """`get_tile` of K."""
        self._only("get_k", True)
        return self.get_tile(qk_stage=qk_stage, e=e)

    def acquire_k(self, *, qk_stage: int) -> None:
        """`acquire` of K."""
        self._only("acquire_k", True)
        self.acquire(qk_stage=qk_stage)

    def get_v_smem(self) -> SmemTile:
        """`get_smem` of V."""
        self._only("get_v_smem", False)
        return self.get_smem()

    def get_v(self, e: Predicate | None = None) -> TMADestination:
        """`get_tile` of V."""
        self._only("get_v", False)
        return self.get_tile(e=e)

    def acquire_v(self) -> None:
        """`acquire` of V."""
        self._only("acquire_v", False)
        self.acquire()


class TMAConsumerPipeline(TilePipeline):
    """The MMA side: `wait`, `ctx.mma(..., get())`, `release`.

    K and V are released separately, since an MMA of each is in flight: S of the next tile, and O of
    this one. On Hopper a release closes the group of wgmmas issued so far: after the releases of K
    and V, `ctx.wgmma_wait(1)` makes the arrival of K, and `ctx.wgmma_wait(0)` that of V.
    """

    def _phase(self) -> int:
        return 0

    def get(self, *, qk_stage: int | None = None) -> SmemTile:
        """Part `qk_stage` of the present stage, as operand B of an MMA.

        Raises:
            TraceError: a stage has several parts, and `qk_stage` is missing.
        """
        parts = self.num_qk_stages_effective
        if qk_stage is None and parts > 1:
            raise TraceError(
                f"get() without qk_stage: a stage of '{self.pipeline.name}' has {parts} parts,"
                " waited for and released one by one: get(qk_stage=part)",
                caller(),
            )
        return self._tile(self.pipeline.state.index(), qk_stage or 0)

    @property
    def full_kv_bytes(self) -> int:
        """Bytes from one stage to the next."""
        return self.tile_bytes * self.num_qk_stages_effective

    def wait(self, *, qk_stage: int = 0) -> None:
        """Waits until the part has landed."""
        self.pipeline.consumer_wait(qk_stage=qk_stage)

    def release(self, *, qk_stage: int = 0, e: Predicate | None = None) -> None:
        """Frees the part once the MMAs issued so far have read it; steps when it is the stage's
        last. See `StagedPipeline`.
        """
        self.pipeline.consumer_release(qk_stage=qk_stage, e=e)

    def release_at(self, idx: Index | None, e: Predicate | None = None) -> None:
        """Frees the last part of another stage, and does not step."""
        self.pipeline.consumer_release_at(idx, e)

    def wait_k(self, *, qk_stage: int | None = None) -> None:
        """`wait` of K; the last part unless given."""
        self._only("wait_k", True)
        self.pipeline.consumer_wait(qk_stage=qk_stage)

    def release_k(self, *, qk_stage: int | None = None, e: Predicate | None = None) -> None:
        """`release` of K; the last part unless given."""
        self._only("release_k", True)
        self.pipeline.consumer_release(qk_stage=qk_stage, e=e)

    def wait_v(self) -> None:
        """`wait` of V."""
        self._only("wait_v", False)
        self.wait()

    def release_v(self, e: Predicate | None = None) -> None:
        """`release` of V."""
        self._only("release_v", False)
        self.release(e=e)


class KProducerPipeline(TMAProducerPipeline):
    """`TMAProducerPipeline` of K."""

    KIND = True


class VProducerPipeline(TMAProducerPipeline):
    """`TMAProducerPipeline` of V."""

    KIND = False


class KConsumerPipeline(TMAConsumerPipeline):
    """`TMAConsumerPipeline` of K."""

    KIND = True


class VConsumerPipeline(TMAConsumerPipeline):
    """`TMAConsumerPipeline` of V."""

    KIND = False
