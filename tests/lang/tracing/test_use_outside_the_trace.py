"""A ctx, and whatever was made from one, is good for one trace: every public member refuses outside
it, or does nothing at all.

The hole comes back with `monkeypatch.setattr(Tracer, "refuse", lambda self: None)`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.conformance.cases import CASES
from tests.conformance.replacing import forget_traces
from tests.support.tracing import refused
from tilepipe.lang.control.blocks import MustEnter
from tilepipe.lang.control.loops import Range, WhileLoop
from tilepipe.lang.fragments.fragment import Fragment
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value
from tilepipe.lang.values.variables import Var
from tilepipe.pipelines.rings.mma_consumer import MmaConsumerStage
from tilepipe.pipelines.schedulers.static import AheadTile

# Public classes that belong to no trace: the host's, and plain data.
OF_THE_HOST = {
    tp.Chip,
    tp.DType,
    tp.KernelFunction,
    tp.Program,
    tp.TensorMap,
    tp.FA4Config,
    tp.OutputPipelineConfig,
    tp.ScaleFactorLayout,
    tp.TileLayout,
    tp.AccumBarrier,
    tp.TilePayload,
    tp.OperandTilePayload,
    tp.TileOperand,
}
# Public classes that are made of parts, each of which refuses.
OF_PARTS = {
    tp.KVTiles,
    tp.WorkTile,
    AheadTile,
    tp.GroupedTile,
    tp.MmaConsumer,
    MmaConsumerStage,
    tp.TMADestination,
    tp.TmemFragments,
}
BEYOND_THE_TABLE = (Range, WhileLoop, MustEnter)
OPERATORS = (
    "add",
    "sub",
    "mul",
    "and",
    "or",
    "eq",
    "lt",
    "getitem",
    "setitem",
    "iadd",
    "isub",
    "iter",
    "enter",
    "invert",
    "neg",
)


def classes() -> list[type]:
    """What a kernel can hold."""
    public = {x for x in vars(tp).values() if inspect.isclass(x) and not issubclass(x, Exception)}
    return sorted(
        {*public, *BEYOND_THE_TABLE} - OF_THE_HOST - OF_PARTS, key=lambda c: c.__qualname__
    )


@tp.kernel()
def rest(ctx: tp.Context, a: Any, counter: Any, offsets: Any) -> None:
    """What no kernel of the conformance table makes."""
    tp.AtomicScheduler(ctx, counter, (1, 1))
    tp.GroupedScheduler(ctx, offsets, rows=8, tile_rows=8, columns=1)
    tp.StaticScheduler(ctx, (1, 1))
    tp.ClcScheduler(ctx, (1, 1))
    tp.OrderedBarrier(ctx, 2)
    tp.SMemTileArray2D(ctx, "float32", 8, 8, 2)
    tp.SMemTileArray2DRowMajor(ctx, "float32", 8, 8, 2)
    payload = tp.OperandTilePayload(tile=tp.TileOperand("float32", (8, 8)))
    inputs = tp.InputTilePipeline.allocate(
        ctx, payload, num_group_stages=2, producer_arrivals=1, consumer_arrivals=1
    )

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        with tp.ProducerAhead(inputs).acquire():
            pass
        with inputs.producer().acquire() as stage, ctx.elect_one("role"):
            stage.mbar().arrive()
        more = ctx.var(True)
        for _ in ctx.loop_while(more):
            more.set(False)
        ctx.fragment(shape=(64, 8)) + 1
        tp.BlockwiseFP8Accumulator(ctx, (64, 8))


@tp.kernel()
def with_named(ctx: tp.Context) -> None:
    barrier = ctx.named_barrier(32, "meet")
    ctx.role("one", warps=1)(barrier.sync)


@pytest.fixture(scope="module")
def kept() -> dict[type, Any]:
    """The last object of each class that the traces of the conformance table's kernels made."""
    found: dict[type, Any] = {}
    patch = pytest.MonkeyPatch()

    def keeping(cls: type) -> None:
        made = cls.__init__  # type: ignore[misc]

        def init(self: Any, *args: Any, **named: Any) -> None:
            made(self, *args, **named)
            found[type(self)] = self

        patch.setattr(cls, "__init__", init)

    for cls in {next(c for c in cls.__mro__ if "__init__" in vars(c)) for cls in classes()}:
        keeping(cls)
    forget_traces()
    for case in CASES:
        case.make(np.random.default_rng(0))
    rest.bind(np.zeros((8, 8), np.float32), np.zeros(1, np.int32), np.zeros(2, np.int32))
    with_named.bind()
    patch.undo()
    forget_traces()
    return found


def object_of(cls: type, kept: dict[type, Any]) -> Any:
    """An object of a class, or of one above or below it with the same members."""
    family = [
        c for c in kept if (issubclass(c, cls) or issubclass(cls, c)) and members(c) >= members(cls)
    ]
    return kept[cls] if cls in kept else kept[family[0]] if family else None


@pytest.mark.slow
def test_every_class_is_looked_at(kept: dict[type, Any]) -> None:
    assert [c.__qualname__ for c in classes() if object_of(c, kept) is None] == []


def in_another_kernel(use: Callable[[], object]) -> tuple[list[BaseException], str]:
    """The errors of `use` while another kernel is traced, and the text of that kernel."""
    errors: list[BaseException] = []

    def once() -> None:
        try:
            use()
        except Exception as error:
            errors.append(error)

    @tp.kernel()
    def other(ctx: tp.Context) -> None:
        ctx.role("other", warpgroups=1)(once)

    return errors, str(other.bind())


SPECIAL: dict[str, Callable[[Any, dict[type, Any]], Any]] = {
    "Context.print": lambda f, kept: f("x"),
    "Context.role": lambda f, kept: f("again", warps=1)(lambda: None),
    "Context.store_global": lambda f, kept: f(kept[tp.GlobalTensor], (0, 0), kept[Fragment]),
    "Context.fragment": lambda f, kept: f(shape=(64, 8)),
    "Context.min": lambda f, kept: f(1, 2),
    "Context.max": lambda f, kept: f(1, 2),
    "OutputTilePipeline.release_from_mma": lambda f, kept: f(kept[tp.OutputStage]),
    "TmemDeallocBarrier.complete_dealloc": lambda f, kept: f(kept[tp.TmemAllocation]),
}  # where the names of the arguments do not say what they are


def call(function: Any, kept: dict[type, Any]) -> Any:
    """Calls a function with something for each argument that must be given."""
    by_name = {
        "tensor": tp.GlobalTensor,
        "tile": SmemTile,
        "mbar": tp.SharedMemBarrier,
        "ref": ElementRef,
        "dst": SmemTile,
        "acc": Fragment,
        "a": SmemTile,
        "b": SmemTile,
        "more": Var,
        "counter": tp.GlobalTensor,
        "ctx": tp.Context,
        "pipeline": tp.ProducerConsumerPipeline,
        "stage": Value,
        "already_ready": Value,
    }
    plain = {
        "shape": (64, 8),
        "dtype": "float32",
        "coords": (0, 0),
        "name": "again",
        "format": "x",
        "function": "exp",
        "key": ...,
        "cond": True,
        "cols": 8,
        "threads": 32,
        "rows": 64,
        "count": 8,
    }
    if function.__qualname__ in SPECIAL:
        return SPECIAL[function.__qualname__](function, kept)
    given: list[Any] = []
    options: dict[str, Any] = {}
    for p in inspect.signature(function).parameters.values():
        x = kept[by_name[p.name]] if p.name in by_name else plain.get(p.name, 0)
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            options[p.name] = x
        elif p.kind is p.VAR_POSITIONAL or (p.default is p.empty and p.kind is not p.VAR_KEYWORD):
            given.append(x)
    return function(*given, **options)


def members(cls: type) -> set[str]:
    """The public members of a class, and the operators it has."""
    dunder = [f"__{o}__" for o in OPERATORS if any(f"__{o}__" in vars(c) for c in cls.__mro__[:-1])]
    return {n for n in dir(cls) if not n.startswith("_")} | set(dunder)


def is_data(x: object) -> bool:
    """Facts that no kernel can be changed by."""
    if isinstance(x, tuple | list):
        return all(map(is_data, x))
    return (
        x is None
        or isinstance(x, bool | int | float | str | type | tp.DType)
        or x is NotImplemented
    )


def problem(thing: object, name: str, kept: dict[type, Any]) -> str:
    """What is wrong with a member outside its trace: "" where it refuses, gives facts, or gives an
    object that is looked at itself.
    """
    used: list[object] = []
    raw = inspect.getattr_static(type(thing), name)
    is_method = inspect.isfunction(raw)

    def use() -> None:
        member = getattr(thing, name)
        result = call(member, kept) if is_method else member
        if isinstance(result, Iterator):
            result = next(result)
        elif isinstance(result, AbstractContextManager):
            result = result.__enter__()
        used.append(result)

    errors, text = in_another_kernel(use)
    if text != in_another_kernel(lambda: None)[1]:
        return f"changes the kernel that is being traced: {text}"
    if errors:
        foreign = "or something made from it, while" in str(errors[0])
        good = isinstance(errors[0], tp.TraceError) and (
            foreign or not isinstance(thing, tp.Context)
        )
        return "" if good else f"{type(errors[0]).__name__}: {errors[0]}"
    if isinstance(thing, tp.Context) or (is_method and used[0] is None):
        return "passes without a word"
    looked_at = type(used[0]) in {*classes(), *OF_THE_HOST, *OF_PARTS} or not is_method
    return "" if is_data(used[0]) or looked_at else f"gives {used[0]!r}"


@pytest.mark.slow
@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__qualname__)
def test_every_member_refuses_outside_its_trace(cls: type, kept: dict[type, Any]) -> None:
    thing = object_of(cls, kept)
    found = {name: problem(thing, name, kept) for name in sorted(members(cls))}
    assert {name: what for name, what in found.items() if what} == {}


def stored(ctx: tp.Context, out: Any) -> None:
    with ctx.elect_one():
        ctx.store(out[0], 1)


def keeps(box: list[Any]) -> tp.KernelFunction:
    @tp.kernel()
    def first(ctx: tp.Context, out: Any) -> None:
        box.append((ctx, out))
        ctx.role("one", warps=1)(lambda: stored(ctx, out))

    return first


def test_a_store_on_another_kernels_ctx_says_whose_it_is() -> None:
    box: list[Any] = []
    keeps(box).bind(np.zeros(1, np.int32))

    @tp.kernel()
    def second(ctx: tp.Context, out: Any) -> None:
        ctx.role("two", warps=1)(lambda: stored(*box[0]))

    words = (
        "uses the ctx of kernel 'first' (test_use_outside_the_trace.py:",
        "while kernel 'second' (test_use_outside_the_trace.py:",
        "with ctx.elect_one():",
    )
    with refused(tp.TraceError, *words):
        second.bind(np.zeros(1, np.int32))


def test_the_kernel_that_was_bound_before_is_another() -> None:
    box: list[Any] = []

    @tp.kernel()
    def again(ctx: tp.Context, out: Any, *, size: int) -> None:
        box.append(ctx)
        ctx.role("one", warps=1)(lambda: stored(box[0], out))

    again.bind(np.zeros(1, np.int32), size=1)
    with refused(
        tp.TraceError,
        "kernel 'again' (test_use_outside_the_trace.py:",
        "while another bind of the same kernel is being traced",
    ):
        again.bind(np.zeros(1, np.int32), size=2)


def test_operands_of_another_kernel() -> None:
    box: list[Any] = []
    keeps(box).bind(np.zeros(1, np.int32))
    kept_out = box[0][1]

    def bound(use: Callable[[tp.Context, Any], object]) -> None:
        @tp.kernel()
        def second(ctx: tp.Context, out: Any) -> None:
            ctx.role("two", warps=1)(lambda: use(ctx, out))

        with refused(tp.TraceError, "uses the ctx of kernel 'first'"):
            second.bind(np.zeros(1, np.int32))

    bound(lambda ctx, out: stored(ctx, kept_out))
    bound(lambda ctx, out: ctx.store(out[kept_out.shape[0]], 1))
    bound(lambda ctx, out: ctx.load_global(kept_out, (0,), (1, 8)))


def test_another_thread_and_an_enclosing_kernel() -> None:
    errors: list[str] = []

    def tried(use: Callable[[], object]) -> None:
        try:
            use()
        except tp.TraceError as error:
            errors.append(str(error))

    @tp.kernel()
    def outer(ctx: tp.Context, out: Any) -> None:
        thread = threading.Thread(target=tried, args=(lambda: ctx.smem((8, 8), "float32"),))
        thread.start()
        thread.join()

        @tp.kernel()
        def inner(own: tp.Context, out: Any) -> None:
            own.role("one", warps=1)(lambda: tried(lambda: stored(ctx, out)))

        inner.bind(np.zeros(1, np.int32))
        ctx.role("one", warps=1)(lambda: stored(ctx, out))  # its own again

    array = np.zeros(1, np.int32)
    outer.bind(array).run()
    assert array[0] == 1
    assert "kernel 'outer' (test_use_outside_the_trace.py:" in errors[0]
    assert "while another thread traces that kernel" in errors[0]
    assert "kernel 'outer' (test_use_outside_the_trace.py:" in errors[1]
    assert "while kernel 'inner' (test_use_outside_the_trace.py:" in errors[1]


def test_without_the_guard_the_store_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hole that the guard closes."""
    box: list[Any] = []
    keeps(box).bind(np.zeros(1, np.int32))
    monkeypatch.setattr(Tracer, "refuse", lambda self: None)

    @tp.kernel()
    def second(ctx: tp.Context, out: Any) -> None:
        ctx.role("two", warps=1)(lambda: box[0][0].print("lost"))

    program = second.bind(np.zeros(1, np.int32))
    assert "lost" not in str(program)
    assert program.check().ok
