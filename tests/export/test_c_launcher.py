"""The launcher in C passes to the driver what the launcher in Python passes."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.support.cuda.fake_driver import FakeDriver
from tests.support.examples import share
from tests.support.export.c_launcher import CLauncher, needs_cc
from tilepipe.cuda.nvrtc.compiler import Compiled
from tilepipe.cuda.runtime import launching
from tilepipe.cuda.runtime.launching import Launcher
from tilepipe.ir.program import TensorArg
from tilepipe.kernels.attention import sm90_bind as attention
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.attention_backward import sm90_bind as attention_backward
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig

pytestmark = [needs_cc, pytest.mark.slow]
BF16 = np.dtype(ml_dtypes.bfloat16)
Make = Callable[[random.Random], tp.Program]


def _array(shape: tuple[int, ...], dtype: Any = BF16) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def a_gemm(rng: random.Random) -> tp.Program:
    m, n, k = (8 * rng.randint(1, 200) for _ in range(3))
    # rows of A may have gaps: a part of a wider array
    a = _array((m, k + 8 * rng.randint(0, 2)))[:, :k]
    cfg = GemmConfig(cluster=2, bm=128, bn=128)
    return gemm.bind(
        a, _array((n, k)), _array((m, n)), cfg, alpha=rng.random() + 0.5,
        bias=_array((n,), np.float32), a_scale=_array((1,), np.float32),
        b_scale=_array((1,), np.float32),
    )  # fmt: skip


def an_attention(rng: random.Random) -> tp.Program:
    batch, s_q, s_kv = rng.randint(1, 4), rng.randint(1, 700), rng.randint(1, 700)
    cfg = AttentionConfig(schedule="dynamic")
    return attention.bind(
        _array((batch, s_q, 8, 64)), _array((batch, s_kv, 2, 64)), _array((batch, s_kv, 2, 64)),
        _array((batch, s_q, 8, 64)), _array((batch, 8, s_q), np.float32), cfg, causal=True,
        scale=rng.random() + 0.1,
    )  # fmt: skip


def a_gradient(rng: random.Random) -> tp.Program:
    """Of attention: it has nine tensor maps."""
    found = Extents(rng.randint(1, 4), 512, 512, 2, 1, 128, 128, tp.bfloat16, 0.125)
    wide, narrow = ((found.batch, 512, heads, 128) for heads in (2, 1))
    return attention_backward.bind(
        _array(wide), _array(narrow), _array(narrow), _array(wide), _array(narrow),
        _array(narrow), attention_backward.Workspace.of(found, False, np.zeros), causal=True,
    )  # fmt: skip


@tp.kernel(grid=lambda out, n: -(-out.shape[0] // 64) if n > 3 else 1)
def ragged(ctx: tp.Context, x: tp.GlobalTensor, out: tp.GlobalTensor, n: tp.Value) -> None:
    """The first n rows of x, to out, by ragged maps, which have more dimensions than tensors."""
    tile = ctx.smem((64, 64), "bfloat16", name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("copy", warps=1)
    def copy() -> None:
        with ctx.elect_one():
            full.expect_bytes(tile.nbytes)
            ctx.tma_load(x, (0, 0), tile, full, lines=n)
        full.wait(0)
        with ctx.elect_one():
            ctx.tma_store(out, (ctx.block_id * 64, 0), tile, rows=n)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def ragged_rows(rng: random.Random) -> tp.Program:
    rows, n = rng.randint(64, 900), rng.randint(1, 64)
    x, out = _array((rows, 64)), _array((2 * rows, 64))
    maps = [tp.tensor_map(a, box=(64, 64), ragged=True) for a in (x, out)]
    return ragged.bind(*maps, n)


CASES: dict[str, tuple[Make, dict[str, tuple[int | str, ...]]]] = {
    "gemm": (
        a_gemm,
        {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n"), "bias": ("n",)},
    ),
    "attention": (
        an_attention,
        {
            "q": ("batch", 8, "s_q", 64),
            "k": ("batch", 2, "s_kv", 64),
            "v": ("batch", 2, 64, "s_kv"),
            "out": ("batch", 8, "s_q", 64),
            "lse": ("batch", 8, "s_q"),
        },
    ),
    "attention_backward": (
        a_gradient,
        {
            **dict.fromkeys(("q", "dout"), ("batch", 2, 512, 128)),
            **dict.fromkeys(("k", "v", "dk", "dv"), ("batch", 1, 512, 128)),
            **dict.fromkeys(("lse_2", "delta"), ("batch", 2, 512)),
            "sums": ("batch", 2, 128, 512),
        },
    ),
    "ragged": (ragged_rows, {"x": ("rows", 64), "out": ("more", 64)}),
}


@dataclass(repr=False)
class Exported:
    """A kernel with both of its launchers."""

    make: Make
    program: tp.Program
    c: CLauncher

    @property
    def compiled(self) -> Compiled:
        m = self.c.manifest
        return Compiled(
            m.entry, m.arch, "cubin", "", "", b"", m.smem_bytes, m.threads, m.cluster
        )  # fmt: skip


@pytest.fixture(scope="module", params=list(CASES))
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    make, extents = CASES[request.param]
    program = make(random.Random(0))
    place = tmp_path_factory.mktemp(request.param)
    path = program.export(place / "out", extents=extents)
    c = CLauncher(path, place)
    assert c.load() == 0, c.error
    return Exported(make, program, c)


class Recording(FakeDriver):
    """Keeps the arguments of each tensor map."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded: list[tuple[Any, ...]] = []
        self.attributes: list[tuple[int, int]] = []

    def cuTensorMapEncodeTiled(self, kind: Any, rank: int, address: int, *rest: Any) -> Any:
        dims, strides, box, ones, *modes = rest
        steps = [0, *map(int, strides)][:rank]
        self.encoded.append(
            (
                int(kind),
                address % 2**64,
                int(modes[1]),
                [tuple(map(int, x)) for x in zip(dims, steps, box, ones, strict=True)],
            )
        )
        return super().cuTensorMapEncodeTiled(kind, rank, address, *rest)

    def _launch(self, config: Any, handle: Any, parameters: int, extra: int) -> Any:
        (attribute,) = config.attrs
        self.attributes.append((int(attribute.id), int(attribute.value.cooperative)))
        return super()._launch(config, handle, parameters, extra)


def test_c_passes_what_python_passes(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=share(25), deadline=None)
    @given(seed=st.integers(0, 2**32))
    def both(seed: int) -> None:
        _compare(exported, random.Random(seed), monkeypatch)

    both()


def _compare(exported: Exported, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches a random problem by both."""
    program, c = exported.make(rng), exported.c
    assert program.kernel is exported.program.kernel  # shapes are no part of a trace
    addresses = {n: 16 * rng.randint(2**20, 2**40) for n in program.launch_args.args}
    stream = rng.choice([0, 0x7777])

    driver, launch = Recording(), program.launch_args
    with monkeypatch.context() as patch:
        driver.install(patch, launching)
        launching.encoded.cache_clear()
        strides = {
            n: arg.array.strides for n, arg in launch.args.items() if isinstance(arg, TensorArg)
        }
        function: Any = SimpleNamespace(ordinal=0, handle=0x30, max_clusters=1)
        python = Launcher(launch, exported.compiled, function, strides)
        packed = python.pack(tuple(addresses[n] for n in python.tensors))
        python.launch_packed(packed, stream)
        launching.encoded.cache_clear()
    grid, threads, smem, on, _ = driver.launches[0]

    arguments: dict[str, Any] = {}
    for name, arg in launch.args.items():
        if isinstance(arg, TensorArg):
            arguments[name] = (
                addresses[name],
                arg.shape,
                [s // arg.array.itemsize for s in arg.array.strides],
            )
        else:
            arguments[name] = arg
    c.calls()
    c.forget()
    assert c.launch(arguments, stream) == 0, c.error
    *maps, launched = c.calls()
    assert launched[:12] == [
        "launch", "1", str(grid), "1", "1", str(threads), "1", "1", str(smem), str(on), "1",
        str(driver.attributes[0][0]),
    ]  # fmt: skip
    assert launched[12] == str(driver.attributes[0][1])
    found = []
    for word, kind, address, swizzle, interleave, promotion, fill, *dims in maps:
        assert (word, interleave, promotion, fill) == ("map", "0", "2", "0")
        tuples = [tuple(map(int, x.split(":"))) for x in dims]
        found.append((int(kind), int(address), int(swizzle), tuples))
    assert found == driver.encoded
    # the other arguments, byte by byte; a map of the stub begins with its address
    each_map = iter(driver.encoded)
    passed = c.manifest.arguments
    assert len(launched) == 13 + len(passed)
    places = ctypes.cast(packed.address, ctypes.POINTER(ctypes.c_void_p))
    for i, (text, one) in enumerate(zip(launched[13:], passed, strict=True)):
        size = c.size(one)
        python_bytes = ctypes.string_at(places[i] or 0, size)
        if one.kind == "map":
            python_bytes = next(each_map)[1].to_bytes(8, "little")
            text = text[:16]
        assert text == python_bytes.hex(), one


def as_exported(exported: Exported) -> dict[str, Any]:
    return {
        n: (0x10000 * (i + 1), arg.shape)
        for i, (n, arg) in enumerate(exported.program.launch_args.args.items())
        if isinstance(arg, TensorArg)
    }


def test_numbers_and_fixed_extents_are_those_of_the_exported_program(exported: Exported) -> None:
    c, launch = exported.c, exported.program.launch_args
    c.calls()
    assert c.launch(as_exported(exported)) == 0, c.error
    launched = c.calls()[-1]
    assert int(launched[2]) == launch.grid
    for text, one in zip(launched[13:], c.manifest.arguments, strict=True):
        if one.kind == "scalar":
            value: Any = launch.args[one.parameter]
            typed = np.float32(value) if isinstance(value, float) else np.int32(value)
            assert text == typed.tobytes().hex()


def test_maps_are_encoded_once_for_an_address_and_a_shape(exported: Exported) -> None:
    c, arguments = exported.c, as_exported(exported)
    maps = sum(x.kind == "map" for x in c.manifest.arguments)
    c.forget()
    c.calls()
    for _ in range(3):
        assert c.launch(arguments) == 0, c.error
    words = [x[0] for x in c.calls()]
    assert words == ["map"] * maps + ["launch"] * 3
    name = next(x.parameter for x in c.manifest.arguments if x.kind == "map")
    arguments[name] = (arguments[name][0] + 0x50000, arguments[name][1])
    assert c.launch(arguments) == 0
    assert [x[0] for x in c.calls()] == ["map", "launch"]


def test_what_lies_beyond_the_rank_of_a_tensor_is_not_compared(exported: Exported) -> None:
    """A caller that fills in the struct itself leaves there what the stack held."""
    c, arguments = exported.c, as_exported(exported)
    assert c.load() == 0, c.error
    assert c.launch(arguments, beyond=1) == 0, c.error
    assert c.matched == 1
    c.calls()
    assert c.launch(arguments, beyond=2) == 0, c.error
    assert [x[0] for x in c.calls()] == ["launch"]
    assert c.matched == 1, "shapes were not looked at again"


def test_a_small_map_loses_the_bit_that_older_drivers_set(exported: Exported) -> None:
    c, arguments = exported.c, as_exported(exported)
    first = next(i for i, x in enumerate(c.manifest.arguments) if x.kind == "map")
    words = []
    for version in (13010, 13020):
        c.set(version=version)
        assert c.load() == 0, c.error
        c.calls()
        assert c.launch(arguments) == 0, c.error
        text = c.calls()[-1][13 + first]
        words.append(int.from_bytes(bytes.fromhex(text)[8:16], "little"))
    name = c.manifest.arguments[first].parameter
    array = exported.program.launch_args.args[name]
    assert isinstance(array, TensorArg)
    reach = array.array.nbytes
    assert words == [2**64 - 1 - (2**21 if reach < 128 * 1024 else 0), 2**64 - 1]


def test_what_a_launch_refuses(exported: Exported) -> None:
    c = exported.c
    assert c.load() == 0, c.error
    name = c.manifest.tensors[0].param.name
    address, shape = as_exported(exported)[name]

    def refused(*tensor: Any) -> str:
        assert c.launch(as_exported(exported)) == 0, c.error  # whose shapes need no second look
        c.calls()
        assert c.launch(as_exported(exported) | {name: tensor}) == 1
        assert "launch" not in [x[0] for x in c.calls()]
        return c.error

    kernel = c.manifest.name
    assert refused(0, shape) == f"{kernel}: {name}.data is NULL"
    assert refused(address + 8, shape) == (
        f"{kernel}: {name} starts at {address + 8:#x}; it has to be a multiple of 16 bytes"
    )
    assert refused(address, (0, *shape[1:])) == (
        f"{kernel}: {name}.shape[0] is 0; an extent is 1 to 2147483647"
    )
    symbol = c.manifest.tensors[0].extents[0]
    if any(symbol in x.extents for x in c.manifest.tensors[1:]):
        assert refused(address, (shape[0] + 1, *shape[1:])).endswith(
            f".shape[0] is {shape[0]}, but {symbol} is {shape[0] + 1} elsewhere"
        )
    odd = [s + 1 for s in np.cumprod([1, *shape[:0:-1]])[::-1]][:-1]
    assert "TMA needs strides that are positive multiples of 16 bytes below 2^40; dimension" in (
        refused(address, shape, (*odd, 1))
    )
    assert "this dimension was exported contiguous" in refused(
        address, shape, (*(8 for _ in shape[1:]), 2)
    )


def test_a_fixed_extent_is_asked_for(tmp_path: Path) -> None:
    program = an_attention(random.Random(1))
    path = program.export(tmp_path / "out")
    c = CLauncher(path, tmp_path)
    assert c.load() == 0, c.error
    arguments = as_exported(Exported(an_attention, program, c))
    address, shape = arguments["k"]
    arguments["k"] = (address, (*shape[:2], shape[2] + 1, shape[3]))
    assert c.launch(arguments) == 1
    assert c.error == (f"attention: k.shape[2] is {shape[2] + 1}; it was exported for {shape[2]}")


def test_what_the_driver_refuses_is_quoted(exported: Exported) -> None:
    exported.c.set(status=701)
    try:
        assert exported.c.launch(as_exported(exported)) == 1
    finally:
        exported.c.set(status=0)
    assert exported.c.error == (
        f"{exported.c.manifest.name}: cuLaunchKernelEx failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
        " (too many resources requested for launch)"
    )


@pytest.mark.parametrize(
    ("stub", "said"),
    [
        ({"major": 10}, "compiled for compute capability 9.0; this GPU has 10.0. Export it for"),
        ({"minor": 1}, "compiled for compute capability 9.0; this GPU has 9.1. Export it for this"),
        ({"sms": 100}, "its grid counts on 132 multiprocessors; this GPU has 100. Export it with"),
        ({"no_context": 1}, "no CUDA context is current in this thread: call cuCtxSetCurrent, or"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_another_gpu_is_refused(exported: Exported, stub: dict[str, int], said: str) -> None:
    c = exported.c
    before = {"major": 9, "minor": 0, "sms": 132, "no_context": 0}
    c.set(**stub)
    try:
        if "sms" in stub and c.manifest.sms == 0:  # its grid does not depend on them
            assert c.load() == 0
            return
        assert c.load() == 1
    finally:
        c.set(**before)
    assert c.error.startswith(f"{c.manifest.name}: {said}")
    assert c.launch(as_exported(exported)) == 1
    assert c.error == f"{c.manifest.name}: not loaded"
    assert c.load() == 0


def test_a_changed_byte_and_a_missing_file_are_refused(exported: Exported, tmp_path: Path) -> None:
    c, name = exported.c, exported.c.manifest.cubin_file
    assert c.load(tmp_path) == 1
    assert c.error == f"{c.manifest.name}: cannot open {tmp_path}/{name}"
    cubin = (c.directory / name).read_bytes()
    rng = random.Random(7)
    for changed in (
        bytes([*cubin[:-1], cubin[-1] ^ 1]),
        cubin[:-1],
        cubin + b"\0",
        b"",
        cubin[: (at := rng.randrange(len(cubin)))] + bytes([cubin[at] ^ 8]) + cubin[at + 1 :],
    ):
        (tmp_path / name).write_bytes(changed)
        c.calls()
        assert c.load(tmp_path) == 1
        assert c.calls() == []  # nothing reached the driver
        assert f"{name} is not what was exported: its SHA-256 is " in c.error
        assert c.error.endswith("Export again, all files together.")
    assert c.load() == 0
    assert c.load_data(cubin) == 0


def test_the_digest_is_sha256(exported: Exported) -> None:
    """Of every length about the ends of a block."""
    import hashlib

    c = exported.c
    for length in [*range(130), 1000, 4096]:
        data = bytes(i * 7 % 251 for i in range(length))
        assert c.load_data(data) == 1
        assert f"its SHA-256 is {hashlib.sha256(data).hexdigest()[:16]}..." in c.error
    assert c.load() == 0


def test_a_kernel_that_is_not_loaded_says_so(exported: Exported, tmp_path: Path) -> None:
    c = CLauncher(exported.c.directory / f"{exported.c.manifest.name}.json", tmp_path)
    assert c.load(tmp_path / "nowhere") == 1
    assert c.launch(as_exported(exported)) == 1
    assert c.error == f"{c.manifest.name}: not loaded"


def test_the_stub_has_the_values_of_the_driver() -> None:
    import re

    from cuda.bindings import driver

    text = (Path(__file__).parents[1] / "support/export/cuda.h").read_text()
    checked = 0
    for body, kind in re.findall(r"typedef enum \{([^}]*)\} (\w+);", text):
        value = -1
        for entry in body.split(","):
            name, _, number = (x.strip() for x in entry.partition("="))
            value = int(number) if number else value + 1
            assert int(getattr(getattr(driver, kind), name)) == value, name
            checked += 1
    assert checked > 25
