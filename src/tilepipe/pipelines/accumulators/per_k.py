"""The per-K views of OutputTilePipeline: each step of K has a separate accumulator, which the
epilogue adds up in registers.

For products whose operands carry scales along K (blockwise fp8): the MMA warp overwrites an
accumulator in each step, the epilogue multiplies it by the step's scales. The scales of A are in
the input stage, so that stage has two kinds of consumers: the MMAs, which commit to its empty
barrier, and the epilogue, which arrives there when it has read them.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.context.context import Context
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.values.scalars import Value
from tilepipe.lang.values.variables import Scalar
from tilepipe.pipelines.accumulators.output_stages import (
    AccumulatorRing,
    EpilogueStage,
    MmaStage,
    OutputStage,
)
from tilepipe.pipelines.accumulators.tensor_memory import TmemStage
from tilepipe.pipelines.rings.input_tiles import InputTilePipeline
from tilepipe.pipelines.rings.producer_consumer import (
    ProducerConsumerPipeline,
    StageContext,
    StageHandle,
)

# Columns of an accumulator loaded at a time: they occupy registers beside the totals.
PROMOTED_COLUMNS = 32


class OutputKPipeline:
    """`with k.produce() as stage:` in the MMA warp, `with k.consume() as stage:` in the epilogue,
    each for one step of K.
    """

    def __init__(self, outputs: AccumulatorRing) -> None:
        self._outputs = outputs

    def produce(self) -> MmaKStage:
        """Waits until the epilogue has freed an accumulator; leaving announces it and steps."""
        outputs = self._outputs
        return outputs.view(MmaKStage, "per-K producer stage", outputs.acquire_mma_linear)

    def consume(self) -> PerKConsumerStage:
        """Waits until the MMAs of a step are done; leaving frees the accumulator, by every thread,
        and steps.
        """
        outputs = self._outputs
        return outputs.view(
            PerKConsumerStage, "per-K consumer stage", outputs.acquire_epilogue_linear
        )

    def acquire_k_stage_linear(self) -> MmaStage:
        """Waits as `produce`; the handle must be released exactly once."""
        return self._outputs.acquire_mma_linear()


class MmaKStage(StageContext[OutputStage]):
    """The context manager of `OutputKPipeline.produce`."""


class PerKConsumerStage(StageContext[OutputStage]):
    """The context manager of `OutputKPipeline.consume`."""


class InputPartStage(StageHandle):
    """The epilogue's part of an input stage. It is acquired without a wait: finished MMAs imply
    that the copies have landed.
    """

    def __init__(self, pipe: ProducerConsumerPipeline, inputs: InputTilePipeline | None) -> None:
        super().__init__(pipe, pipe.consumer_stage(), "consumer")
        self.inputs = inputs

    def release(self) -> None:
        """Arrives on the stage's empty barriers, unless the body has; steps."""
        if self.must_signal():
            self.arrive()
        self._end()

    def arrive(self) -> None:
        """Arrives once for each warp, after its lanes have read, on the barriers of all CTAs of the
        cluster, since each of them may copy into this CTA.

        The arrivals are relaxed beyond this CTA: only this CTA's own copies refill what the
        epilogue reads, and within its CTA the plain form releases. Other CTAs refill what the MMAs
        read, which the MMAs' commits order. `.release.cluster` would fence the whole GPU
        (MEMBAR.ALL.GPU) in every step of K.
        """
        ctx = Context(self._tracer)
        ctx.syncwarp()
        with ctx.when(ctx.lane < ctx.cluster_size):
            if ctx.cluster_size == 1:
                self.mbar().arrive()
            else:
                self.refuse_twice("arrives")
                self.mbar().arrive_cluster(ctx.lane, relaxed=True)
        ctx.syncwarp()


class EpilogueKStage:
    """One step of K in the epilogue.

    Attributes:
        output_stage: the accumulator. input_stage_index: the input stage whose scales belong to it.
    """

    def __init__(self, output: EpilogueStage, part: InputPartStage) -> None:
        self._output = output
        self._part = part
        self.output_stage = OutputStage(output)
        self.input_stage_index: Value = part.index()
        self.input_pipeline = part.pipe

    @property
    def index(self) -> Value:
        """The accumulator's number in the ring."""
        return self._output.index()

    @property
    def tmem(self) -> TmemStage:
        """The accumulator's stage of tensor memory."""
        return self._output.tmem()

    def tile(self) -> tuple[SmemTile, ...]:
        """The tiles of the input stage.

        Raises:
            TraceError: `per_k_epilogue` was given the pipeline of barriers alone.
        """
        inputs = self._part.inputs
        if inputs is None:
            raise TraceError(
                f"per_k_epilogue was given the barriers '{self._part.pipe.name}' alone, which have"
                " no tiles: give it the InputTilePipeline, or take the tiles from its payload,"
                " `inputs.payload.get_tile(step.input_stage_index, k_group_size=1)`",
                caller(),
            )
        return inputs.payload.get_tile(
            self.input_stage_index, 0, k_group_size=inputs.k_group_size, owner=self._part
        )

    def _release(self) -> None:
        self._part.release()
        self._output.release()

    def arrive_input(self) -> None:
        """Signals that this epilogue has read its part of the input stage; leaving the step does so
        where the body has not.
        """
        self._part.arrive()


class EpilogueKContext(StageContext[EpilogueKStage]):
    """`with outputs.per_k_epilogue(inputs) as stage:` waits on entry until the MMAs of the step
    have finished; leaving steps the input, frees the accumulator, and steps the output, in this
    order.
    """

    how_to_release = "Enter it: `with outputs.per_k_epilogue(inputs) as stage:`."

    def __init__(
        self, outputs: AccumulatorRing, inputs: InputTilePipeline | ProducerConsumerPipeline
    ) -> None:
        if not isinstance(inputs, InputTilePipeline | ProducerConsumerPipeline):
            raise TraceError(
                "per_k_epilogue takes the InputTilePipeline whose stages hold the scales, or its"
                f" ProducerConsumerPipeline; got {inputs!r}",
                caller(),
            )
        if isinstance(inputs, InputTilePipeline) and inputs.k_group_size != 1:
            raise TraceError(
                f"per_k_epilogue takes one tile of K a step, but '{inputs.name}' has"
                f" k_group_size={inputs.k_group_size}: the scales of the others would never be"
                " read",
                caller(),
            )
        tiles = inputs if isinstance(inputs, InputTilePipeline) else None
        pipe = inputs.pipeline if isinstance(inputs, InputTilePipeline) else inputs
        super().__init__(
            outputs._ctx.tracer,
            f"per-K epilogue of '{outputs.name}'",
            lambda: EpilogueKStage(outputs.acquire_epilogue_linear(), InputPartStage(pipe, tiles)),
            EpilogueKStage._release,
        )


class BlockwiseFP8Accumulator:
    """The total, in registers, of products whose steps of K have scales; the `accum` of the API
    page's example.

    `total`: a float32 fragment (rows, cols) of layout "tmem".
    """

    def __init__(self, ctx: Context, shape: tuple[int, int]) -> None:
        self._ctx = ctx
        self._shape = shape
        self.total: Fragment = ctx.fragment(shape=shape, layout="tmem")

    def clear(self) -> None:
        """Sets the total to 0, for a new tile."""
        self.total.fill(0)

    def promote(
        self, stage: EpilogueKStage, a_scales: SmemTile, b_scale: Scalar | FragmentValue
    ) -> None:
        """total += accumulator · a_scales · b_scale, and frees the scales' input stage as soon as
        they are in registers.

        Args:
            a_scales: (1, rows) float32, of this step. b_scale: a scalar, or one value a column, (1,
                cols).

        Raises:
            TraceError: scales of another shape.
        """
        ctx, (rows, cols) = self._ctx, self._shape
        scales = ctx.fragment(shape=(rows, 1), layout="tmem")
        scales.load(a_scales)
        stage.arrive_input()
        columns = b_scale if isinstance(b_scale, FragmentValue) else None
        if columns is not None and columns.shape != (1, cols):
            raise TraceError(
                f"promote: b_scale has shape {columns.shape}; need a scalar, or one value a column,"
                f" (1, {cols})",
                caller(),
            )
        held = (
            columns if columns is None or isinstance(columns, Fragment) else ctx.fragment(columns)
        )
        factor = scales if held is not None else ctx.fragment(scales * b_scale)
        accumulator = stage.tmem.tensor((rows, cols))
        for col in range(0, cols, PROMOTED_COLUMNS):
            width = min(PROMOTED_COLUMNS, cols - col)
            part = accumulator.cols(col, width).load()
            ctx.tmem_wait_load()
            scaled = part * (factor if held is None else factor * held.cols(col, width))
            self.total.set(self.total.cols(col, width) + scaled, col)
