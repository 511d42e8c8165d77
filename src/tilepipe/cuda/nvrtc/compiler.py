"""Compiles the printed source with NVRTC, and refuses a cubin whose log shows a loss of speed.
Needs neither a GPU nor a driver.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tilepipe.cuda.codegen.instrument import smem_bytes
from tilepipe.cuda.codegen.printer import source as print_source
from tilepipe.cuda.nvrtc import cache, processes
from tilepipe.errors import BindError, CompileError, UnavailableError
from tilepipe.host_arguments import shown
from tilepipe.ir.chip import BLACKWELL, generation
from tilepipe.ir.placement import broken_pool_rule
from tilepipe.ir.program import Kernel, architecture

EMITS = ("cubin", "ptx", "cuda")
# Faults of the machine code that ptxas reports as remarks, and that cost up to a third of the
# speed. ptxas has a code for each reason, C7504 to C7519, so what matters is what the remark says:
# (words of the remark, what happened, what to change).
LOSSES = (
    (
        "'setmaxnreg' ignored to maintain minimum register requirements",
        "ptxas ignored setmaxnreg, so registers= of every role has no effect",
        "A role needs more registers than its registers= gives it: raise that, at the cost of the"
        " other roles, or use smaller tiles; without registers= all threads get the same number",
    ),
    (
        "'setmaxnreg' ignored",
        "ptxas ignored setmaxnreg, so registers= of every role has no effect",
        "The remark says what prevents it: mend that, or leave registers= out",
    ),
    (
        "wgmma.mma_async instructions are serialized due to insufficient register",
        "ptxas serialised wgmma: the tensor cores wait after each instruction",
        "Use smaller tiles or raise registers= of the role",
    ),
    (
        "wgmma.mma_async instructions are serialized",
        "ptxas serialised wgmma: the tensor cores wait after each instruction",
        "Between ctx.mma and the wait for it the role must touch neither the accumulator nor a"
        " fragment that is an operand, in any branch or round of a loop",
    ),
    (
        "Potential Performance Loss",
        "ptxas reports a loss of speed",
        "The remark says what to change",
    ),
)

TMEM_CHECK = "--ptxas-options=-g-tmem-access-check"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled kernel.

    Attributes:
        name: the name of the entry point.
        data: the cubin, or the PTX or CUDA text in UTF-8, as `emit` says.
        smem_bytes: bytes of dynamic shared memory to launch with.
        threads: threads of a CTA.
        cluster: CTAs of a cluster.
        registers: registers of a thread at launch. This and the next two are None unless emit is
            "cubin".
        spill_bytes: bytes of spill stores and loads.
        stack_bytes: bytes of the stack frame.
        debug: a launch passes the address of a record (`cuda.debug.hang`) after the program's
            arguments.
        perturbed: a launch passes a seed (uint32) after that.
        timed: a launch passes memory for stamps (`cuda.debug.stamps`) as the last arguments.
    """

    name: str
    arch: str
    emit: str
    source: str
    log: str
    data: bytes
    smem_bytes: int
    threads: int
    cluster: int
    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    debug: bool = False
    perturbed: bool = False
    timed: bool = False


def compile(
    kernel: Kernel,
    arch: str | None = None,
    emit: str = "cubin",
    *,
    allow: Collection[str] = (),
    lineinfo: bool = False,
    debug: bool = False,
    perturb: int | None = None,
    timed: bool = False,
) -> Compiled:
    """Prints and compiles a kernel.

    `arch`: one of `ir.chip.ARCHITECTURES`; unless given, "sm_90a" or "sm_100a", whichever
    has the kernel's ops. `emit`: "cubin", "ptx" or "cuda" (the source, not compiled). `allow`: the
    losses to accept, codes of ptxas such as "C7508", and "spills". `lineinfo`: lets profilers show
    the lines of the Python kernel. `debug`: bounds every wait, and gives a launch up when a wait
    does not end; on Blackwell, ptxas also adds checks of accesses to tensor memory (`options`).
    `perturb`: where it is not None, adds random delays at synchronisation points, chosen by a seed
    that each launch passes. `timed`: every warp notes when it comes to the points of `ir.stamps`.
    These three cost speed, so they accept all losses.

    Raises:
        BindError: unknown architecture or `emit`.
        LimitError: shared memory has no room for the state of a debug or perturbed build.
        CompileError: the kernel has no CUDA form, NVRTC refuses it, ptxas reports a loss that is
            not allowed, or gives threads fewer registers than the warpgroups ask for.
        UnavailableError: the CUDA packages are not installed.
    """
    if not isinstance(emit, str) or emit not in EMITS:
        raise BindError(f"cannot emit {shown(emit)}; known: {', '.join(EMITS)}")
    perturbed, arch = perturb is not None, architecture(kernel) if arch is None else arch
    code = print_source(kernel, arch, lineinfo=lineinfo, debug=debug, perturb=perturb, timed=timed)
    shape: dict[str, Any] = {
        "smem_bytes": smem_bytes(kernel, debug or perturbed),
        "threads": kernel.threads,
    }
    shape |= {
        "cluster": kernel.cluster_size,
        "debug": debug,
        "perturbed": perturbed,
        "timed": timed,
    }
    name = entry_point(code)
    if emit == "cuda":
        return Compiled(name, arch, emit, code, "", code.encode(), **shape)
    checked = debug and bool(kernel.cta_group)
    log, data = _compiled(
        code, f"{name}.cu", emit, options(arch, emit, lineinfo=lineinfo, checks_tmem=checked)
    )
    if emit == "ptx":
        return Compiled(name, arch, emit, code, log, data, **shape)
    shape |= resources(log)
    if broken := broken_pool_rule(kernel, shape["registers"]):
        raise CompileError(
            f"'{kernel.name}' compiles to {shape['registers']} registers a thread. {broken}",
            kernel.loc,
        )
    if not (debug or perturbed or timed):
        _check_losses(kernel, log, shape["spill_bytes"], allow)
    return Compiled(name, arch, emit, code, log, data, **shape)


def is_cached(kernel: Kernel, arch: str | None = None) -> bool:
    """Whether `compile` would take the cubin of a kernel from the disk."""
    return cache.read(cubin_key(kernel, arch)) is not None


def cubin_key(kernel: Kernel, arch: str | None = None) -> str:
    """The key of a kernel's cubin in the cache on disk."""
    arch = architecture(kernel) if arch is None else arch
    code = print_source(kernel, arch, lineinfo=False, debug=False, perturb=None)
    return _cache_key(code, f"{entry_point(code)}.cu", options(arch, "cubin"))


def refuse_late(kernel: Kernel, arch: str) -> None:
    """Raises CompileError where the environment has TILEPIPE_JIT=error and the disk has no cubin of
    a kernel: what is about to be launched would be compiled first, in the midst of serving.

    Raises:
        BindError: TILEPIPE_JIT has another value.
    """
    chosen = os.environ.get("TILEPIPE_JIT", "")
    if chosen not in ("", "error"):
        raise BindError(f"TILEPIPE_JIT is 'error', or not set; got {chosen!r}")
    if chosen != "error" or is_cached(kernel, arch):
        return
    where = cache.directory()
    place = "the cache is off (TILEPIPE_CACHE_DIR)" if where is None else f"it is not in {where}"
    raise CompileError(
        f"'{kernel.name}' for {arch} would be compiled now, at its launch, which TILEPIPE_JIT=error"
        f" refuses: {place}. Compile it ahead, with this version of tilepipe and NVRTC, by"
        " `tilepipe warm`, or load an export (tp.load_exported).",
        kernel.loc,
    )


def entry_point(code: str) -> str:
    """The name of the `__global__` function of a printed file."""
    found = re.search(r"__launch_bounds__\(\d+, \d+\) (\w+)\(", code)
    assert found is not None
    return found[1]


def options(
    arch: str, emit: str, *, lineinfo: bool = False, checks_tmem: bool = False
) -> tuple[str, ...]:
    """The options that NVRTC is called with.

    `checks_tmem`: each tcgen05 instruction checks its addresses of tensor memory, and traps where
    they are out of bounds or not allocated (`--g-tensor-memory-access-check` of ptxas, which
    `--device-debug` implies). It is passed for Blackwell only; other targets refuse it.
    """
    target = arch if emit == "cubin" else arch.replace("sm_", "compute_")
    # --no-cache: a result from NVRTC's own cache (NVRTC, "Caching") has no log to check.
    found = [f"--gpu-architecture={target}", "--std=c++17", "--ptxas-options=-v", "--no-cache"]
    if lineinfo:
        found.append("--generate-line-info")
    if checks_tmem and generation(arch) == BLACKWELL:
        found.append(TMEM_CHECK)
    return tuple(found)


def _compiled(code: str, filename: str, emit: str, given: tuple[str, ...]) -> tuple[str, bytes]:
    """The (log, output) of `nvrtc`. A cubin that was compiled before comes from the disk."""
    if emit != "cubin":
        return nvrtc(code, filename, emit, given)
    name = _cache_key(code, filename, given)
    found = cache.read(name)
    if found is None:
        found = processes.compiled(nvrtc, code, filename, emit, given)
        cache.write(name, *found)
    return found


def _cache_key(code: str, filename: str, given: tuple[str, ...]) -> str:
    return cache.key(code, filename, nvrtc_version(), *given)


def _nvrtc_api() -> Any:
    try:
        from cuda.bindings import nvrtc as api
    except ImportError:
        raise UnavailableError(
            "compiling needs NVRTC, which is not installed: pip install tilepipe[cuda]"
        ) from None
    return api


@functools.cache
def nvrtc_version() -> str:
    """The version of NVRTC.

    Raises:
        UnavailableError: there is no NVRTC.
    """
    api = _nvrtc_api()
    try:
        _, major, minor = api.nvrtcVersion()
    except (OSError, RuntimeError) as error:
        raise UnavailableError(
            f"NVRTC cannot be loaded ({error}): pip install tilepipe[cuda]"
        ) from None
    return f"{major}.{minor}"


def nvrtc(code: str, filename: str, emit: str, given: tuple[str, ...]) -> tuple[str, bytes]:
    """Runs NVRTC with the options of `options`; returns (log, cubin or PTX).

    Raises:
        CompileError: NVRTC refuses the source; the message has its first errors.
        UnavailableError: there is no NVRTC.
    """
    api = _nvrtc_api()
    try:
        program = _checked(api.nvrtcCreateProgram(code.encode(), filename.encode(), 0, [], []))
    except (OSError, RuntimeError) as error:
        raise UnavailableError(
            f"NVRTC cannot be loaded ({error}): pip install tilepipe[cuda]"
        ) from None
    try:
        (status,) = api.nvrtcCompileProgram(program, len(given), [o.encode() for o in given])
        log = (
            _text(api.nvrtcGetProgramLogSize, api.nvrtcGetProgramLog, program)
            .rstrip(b"\0\n ")
            .decode()
        )
        if status != api.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(
                f"NVRTC refused the printed source ({status.name}):\n{_excerpt(log, code)}"
            )
        if emit == "cubin":
            return log, _text(api.nvrtcGetCUBINSize, api.nvrtcGetCUBIN, program)
        return log, _text(api.nvrtcGetPTXSize, api.nvrtcGetPTX, program).rstrip(b"\0")
    finally:
        api.nvrtcDestroyProgram(program)


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise CompileError(f"NVRTC: {status.name}")
    return values[0] if values else None


def _text(size: Any, get: Any, program: Any) -> bytes:
    # Never bytes: NVRTC writes into what it is given, and all of Python shares one b" ".
    buffer = bytearray(int(_checked(size(program))))
    _checked(get(program, buffer))
    return bytes(buffer)


def _excerpt(log: str, code: str, limit: int = 12) -> str:
    """The first errors of a log, each with the line of the printed source that it is about."""
    lines = code.splitlines()
    shown: list[str] = []
    for line in [x for x in log.splitlines() if "error" in x][:limit]:
        shown.append(line)
        at = re.search(r"\((\d+)\): error", line)
        if at is not None and int(at[1]) <= len(lines):
            shown.append(f"    {lines[int(at[1]) - 1].strip()}")
    return "\n".join(shown) or log[:2000]


def resources(log: str) -> dict[str, int]:
    """The registers, spill bytes and stack bytes that a `ptxas -v` log reports."""
    registers = re.search(r"Used (\d+) registers", log)
    frame = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log
    )
    if registers is None or frame is None:
        raise CompileError(f"the compile log has no resource usage:\n{log[:2000]}")
    stack, stores, loads = map(int, frame.groups())
    return {"registers": int(registers[1]), "spill_bytes": stores + loads, "stack_bytes": stack}


def _check_losses(kernel: Kernel, log: str, spill_bytes: int, allow: Collection[str]) -> None:
    """Raises CompileError for losses that are not in `allow`, which has codes and "spills"."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for line in log.splitlines():
        code = re.search(r"\((C\d+)\) .*Potential Performance Loss", line)
        if code is not None:
            happened, advice = next((h, a) for words, h, a in LOSSES if words in line)
            found.setdefault((code[1], happened, advice), []).append(line)
    if spill_bytes:
        happened = "registers spilled to local memory"
        advice = "Use smaller tiles or raise registers= of the role"
        found["spills", happened, advice] = [x for x in log.splitlines() if "spill" in x]
    for (name, happened, advice), lines in found.items():
        if name not in allow:
            excerpt = "\n".join(f"  {x.strip()}" for x in lines)
            asked = [
                f"role '{role.name}' at {role.loc.short}: {role.registers}"
                for role in kernel.roles
                if role.registers is not None
            ]
            given = f"\n  registers=: {', '.join(asked)}." if asked else ""
            raise CompileError(
                f"'{kernel.name}' compiles, but {happened}:\n{excerpt}{given}\n"
                f"  {advice}; allow=[{name!r}] accepts it.",
                kernel.loc,
            )
