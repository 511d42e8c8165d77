"""A debug build's record: its layout, what it becomes, and what a launch does with it. Nothing is
launched.
"""

from __future__ import annotations

import ctypes
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.cuda.codegen.test_instrument import BUILDS, KERNELS, gemm
from tests.examples.ladder import EXAMPLES, load
from tests.support.build import Builder
from tilepipe import cuda
from tilepipe.cuda.codegen.instrument import SHARED, STATE_BYTES
from tilepipe.cuda.debug.hang import RECORD_BYTES, decode, fresh_record, hang_error
from tilepipe.cuda.debug.wait_sites import sites
from tilepipe.cuda.nvrtc import compiler
from tilepipe.cuda.ptx.wrappers import SNIPPETS
from tilepipe.cuda.runtime import driver, launching
from tilepipe.errors import BindError, HangError, LaunchError
from tilepipe.ir import ops
from tilepipe.ir.program import Kernel, walk
from tools.docs import shown
from tools.docs.readme import ROOT, blocks, run, words

HEAD, WAIT = struct.Struct("<IIIIQQ"), struct.Struct("<IIIIIIQ")


def test_the_device_lays_the_record_out_as_the_host_reads_it() -> None:
    fields = {
        "DebugRecord": {
            "abort": 0,
            "cluster": 4,
            "waits": 8,
            "limit_ns": 16,
            "first": HEAD.size,
            "others": HEAD.size + WAIT.size,
        },
        "DebugWait": {"site": 0, "block": 4, "warp": 8, "index": 12, "parity": 16, "state": 24},
    }
    wanted = [(t, f, n) for t, each in fields.items() for f, n in each.items()]
    stores = [
        f"x[{i}] = static_cast<u32>(reinterpret_cast<u64>(&static_cast<{t}*>(nullptr)->{f}));"
        for i, (t, f, _) in enumerate(wanted)
    ]
    types = "using u32 = unsigned int;\nusing u64 = unsigned long long;\n"
    code = (
        f"{types}{SHARED}\n"
        f"constexpr u32 debug_offset = 0, debug_bytes = {STATE_BYTES}, debug_cluster = 1;\n"
    )
    code += "\n".join(
        [SNIPPETS["debug_state"].code, 'extern "C" __global__ void k(u32* x) {', *stores, "}\n"]
    )
    text = compiler.nvrtc(code, "k.cu", "ptx", compiler.options("sm_90a", "ptx"))[1].decode()
    constants = dict(re.findall(r"mov\.[bus]32\s+(%r\d+), (\d+);", text))
    stored = re.findall(r"st\.global\.[bus]32\s+\[%rd\d+(?:\+(\d+))?\], (%?\w+);", text)
    assert {int(at or 0) // 4: int(constants.get(x, x)) for at, x in stored} == {
        i: n for i, (_, _, n) in enumerate(wanted)
    }


def record(*waits: tuple[int, ...], limit_ns: int = 200_000_000) -> bytes:
    """A record of waits (site, block, warp, index, parity, state)."""
    entries = b"".join(WAIT.pack(*w[:5], 0, w[5]) for w in waits)
    return (HEAD.pack(1, 1, len(waits) - 1, 0, limit_ns, 0) + entries).ljust(RECORD_BYTES, b"\0")


def message(kernel: Kernel, *waits: tuple[int, ...]) -> str:
    report = decode(record(*waits), kernel)
    assert report is not None
    error = hang_error(report, kernel)
    assert isinstance(error, HangError)
    assert error.loc == report.first.site.loc
    return str(error)


def number(kernel: Kernel, role: str, name: str) -> int:
    """The first wait of a role on a barrier."""
    return next(
        n
        for n, s in enumerate(sites(kernel))
        if s.role is not None and s.role.name == role and s.name(0).startswith(name)
    )


def test_a_launch_that_ended_has_no_report() -> None:
    kernel = gemm()
    assert decode(fresh_record(), kernel) is None
    assert decode(bytes(RECORD_BYTES), kernel) is None


def test_the_limit_is_in_the_record_in_nanoseconds() -> None:
    assert HEAD.unpack_from(fresh_record(200))[4] == 200_000_000
    for bad in (0, -1, float("nan")):
        with pytest.raises(BindError, match="milliseconds above 0; got"):
            fresh_record(bad)


def test_a_record_of_something_else() -> None:
    with pytest.raises(BindError, match="a debug record has 2048 bytes, got 3"):
        decode(b"abc", gemm())
    with pytest.raises(
        BindError, match=r"names wait 99; kernel 'gemm' has \d+: it is another kernel's"
    ):
        decode(record((99, 0, 0, 0, 0, 0)), gemm())


def test_an_mbarrier() -> None:
    kernel = KERNELS["gemm in clusters"]()
    full, empty = number(kernel, "mma", "inputs.full"), number(kernel, "load", "inputs.empty")
    text = message(
        kernel,
        (full, 5, 3, 2, 1, 77),
        (full, 5, 2, 2, 1, 77),
        (empty, 4, 8, 0, 0, 1),
        (full, 5, 3, 2, 1, 77),
        (full, 5, 0, 2, 1, 7),
    )
    line = sites(kernel)[full].loc.short
    loads = [
        op.loc.short for r in kernel.roles for op in walk(r.body) if isinstance(op, ops.TmaLoad)
    ]
    for part in (
        "kernel 'gemm' hung on the GPU: a wait blocked for 200 ms, and the launch was given up.",
        (
            "role 'mma', warps 0, 2, 3, of CTA 5 (rank 1 of cluster 2) waits for phase "
            f"parity 1 of inputs.full[2], at {line}"
        ),
        "what could end the wait (1 arrival a phase, and the bytes expected):",
        "mbar_expect, role 'load' at sm90.py:",
        f"tma_load, role 'load' at {loads[0]}",
        "also waiting in this cluster:",
        (
            "role 'load', warp 0, of CTA 4 (rank 0 of cluster 2): phase parity 0 of "
            "inputs.empty[0], at sm90.py:"
        ),
        "program.run() runs the same program on the simulated GPU",
        "raise timeout_ms",
        "The results of this launch are not valid; the CUDA context is.",
    ):
        assert part in text


def test_the_message_that_the_page_shows() -> None:
    kernel = load(EXAMPLES / "05_warp_specialised_gemm.py")(0).kernel
    site, warp = number(kernel, "load", "inputs.empty"), kernel.roles[0].first_warp
    text = f"HangError: {message(kernel, (site, 2, warp, 0, 1, 0))}".replace(f"{EXAMPLES}/", "")
    assert words(blocks(ROOT / "docs" / "concepts" / "cuda.md", "text")[2]) == words(text)


def test_the_message_that_the_how_to_page_shows(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "debug-a-hang.md"
    code = shown.files(page.read_text(encoding="utf-8"))["hang.py"]
    kernel = run(code, tmp_path / "hang.py")["program"].kernel
    site, warp = number(kernel, "compute", "full"), kernel.roles[1].first_warp
    text = f"HangError: {message(kernel, (site, 0, warp, 0, 0, 0))}".replace(f"{tmp_path}/", "")
    assert words(blocks(page, "text")[1]) == words(text)


def test_a_named_barrier_and_the_cluster_barrier_count_the_arrivals() -> None:
    kernel = KERNELS["rounds"]()
    written, cluster = number(kernel, "sum", "written"), number(kernel, "talk", "the cluster")
    text = message(
        kernel, (written, 3, 1, 0, 1, 9 << 16 | 1), (cluster, 2, 0, 0, 0, 5 << 20 | 1 << 10 | 2)
    )
    assert (
        "role 'sum', warp 0, of CTA 3 (rank 1 of cluster 1) waits for named barrier written, at"
        " which 32 of 64 threads have arrived" in text
    )
    assert "named_arrive, role 'talk' at hangs.py:" in text
    assert "named_sync, role 'sum' at hangs.py:" in text
    assert (
        "role 'talk', warp 0, of CTA 2 (rank 0 of cluster 1): the cluster barrier, at which 2 of"
        " 4 warps have arrived, 1 have left" in text
    )
    report = decode(record((cluster, 0, 0, 0, 0, 1)), kernel)
    assert report is not None
    assert "cluster_arrive, role 'sum'" in str(hang_error(report, kernel))


def test_set_up_and_a_copy_for_each_warpgroup() -> None:
    b = Builder()
    bar, named = b.barriers("go"), b.named("meet", 128, per_warpgroup=2)
    b.wait(b.bar(bar), 0)
    b.setup_done()
    with b.role("pair", warpgroups=2):
        b.do(ops.NamedSync, named, None)
    kernel = b.finished()
    text = message(kernel, (0, 0, 6, 0, 0, 0), (1, 0, 5, 1, 0, 3))
    assert "set-up, warp 6, of CTA 0 waits for phase parity 0 of go" in text
    assert (
        "role 'pair', warp 5, of CTA 0: named barrier meet[1], at which 96 of 128 threads have"
        " arrived" in text
    )
    assert "also waiting in this CTA:" in text


def test_more_waits_than_a_record_holds() -> None:
    kernel = gemm()
    many = RECORD_BYTES // WAIT.size - 2
    full = record(*[(0, 0, i % 8, 0, 0, 0) for i in range(1 + many)])
    assert len(full) == RECORD_BYTES
    report = decode(full[:8] + struct.pack("<I", 1000) + full[12:], kernel)
    assert report is not None
    assert report.first.warps == tuple(range(8))


# -- launching -------------------------------------------------------------------------


class Device:
    """Stands for the driver and a launcher: memory is a dict, and a launch may leave something in
    the record.
    """

    ordinal = 0

    def __init__(self, kernel: Kernel, build: dict[str, Any], found: bytes | None) -> None:
        self.compiled = cuda.compile(kernel, emit="cuda", **build)
        self.found = found
        self.memory: dict[int, bytes] = {}
        self.extra: list[tuple[type, int]] = []
        self.log: list[str] = []
        self.ends: Any = 0

    def call(self, name: str, *args: Any) -> Any:
        self.log.append(name)
        match name:
            case "cuMemAlloc":
                self.memory[4096] = bytes(args[0])
                return 4096
            case "cuMemcpyHtoDAsync":
                self.memory[args[0]] = ctypes.string_at(args[1], args[2])
            case "cuMemcpyDtoH":
                ctypes.memmove(args[0], self.memory[args[1]], args[2])
        return None

    def api(self) -> Device:
        return self

    def cuStreamSynchronize(self, _stream: int) -> tuple[int]:
        self.log.append("cuStreamSynchronize")
        return (self.ends,)

    def cuMemFree(self, address: int) -> tuple[int]:
        self.log.append("cuMemFree")
        del self.memory[address]
        return (self.ends,)

    def pack(self, addresses: tuple[int, ...], extra: tuple[Any, ...]) -> tuple[int, ...]:
        self.extra = [(type(x), x.value) for x in extra]
        return addresses

    def launch_packed(self, packed: Any, stream: int) -> None:
        self.log.append(f"launch{packed} on {stream}")
        if self.found is not None:
            assert HEAD.unpack_from(self.memory[4096])[4] == 200_000_000
            self.memory[4096] = self.found


@pytest.mark.parametrize("hung", [False, True])
@pytest.mark.parametrize("build", BUILDS, ids=str)
def test_a_launch(build: dict[str, Any], hung: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS["C3"]()
    device = Device(
        kernel, build, record((0, 0, 0, 0, 0, 0)) if hung and "debug" in build else None
    )
    monkeypatch.setattr(driver, "call", device.call)
    monkeypatch.setattr(driver, "primary_context", lambda _: 1)
    monkeypatch.setattr(driver, "api", device.api)
    launcher: Any = device
    if device.found is None:
        launching.launch_instrumented(launcher, kernel, (1, 2), 9, seed=-1, timeout_ms=200)
    else:
        with pytest.raises(HangError, match="hung on the GPU: a wait blocked for 200 ms"):
            launching.launch_instrumented(launcher, kernel, (1, 2), 9, seed=-1, timeout_ms=200)
    seed = [(ctypes.c_uint32, 2**32 - 1)] if "perturb" in build else []
    assert device.extra == ([(ctypes.c_uint64, 4096)] if "debug" in build else []) + seed
    assert device.memory == {}
    work = [name for name in device.log if not name.startswith("cuCtx")]
    launched = ["launch(1, 2) on 9"]
    assert work == (
        [
            "cuMemAlloc",
            "cuMemcpyHtoDAsync",
            *launched,
            "cuStreamSynchronize",
            "cuMemcpyDtoH",
            "cuMemFree",
        ]
        if "debug" in build
        else launched
    )


def test_a_debug_launch_that_fails_otherwise_names_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not what freeing the record then says, which fails as well."""
    kernel = KERNELS["C3"]()
    device = Device(kernel, {"debug": True}, None)
    device.ends = type("Status", (int,), {"name": "CUDA_ERROR_ILLEGAL_ADDRESS"})(700)
    monkeypatch.setattr(driver, "call", device.call)
    monkeypatch.setattr(driver, "api", device.api)
    monkeypatch.setattr(driver, "describe", lambda status: status.name)
    monkeypatch.setattr(driver, "primary_context", lambda _: 1)
    launcher: Any = device
    with pytest.raises(
        LaunchError,
        match=f"kernel '{kernel.name}' failed on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS. The CUDA "
        "context",
    ):
        launching.launch_instrumented(launcher, kernel, (1, 2), 9)
    assert device.memory == {}
