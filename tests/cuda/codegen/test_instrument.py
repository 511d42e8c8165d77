"""Debug and perturbed builds: what is printed, and the table of waits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.examples.ladder import EXAMPLES, NAMES, arch, load
from tests.gpu import hangs
from tests.scenarios.test_pipelines_under_load import (
    bind_rows_and_columns,
    three_warpgroups,
    two_producer_warps,
)
from tests.support.build import LANE, Builder, binary
from tilepipe import cuda
from tilepipe.cuda.codegen.instrument import STATE_BYTES
from tilepipe.cuda.debug.wait_sites import sites
from tilepipe.errors import LimitError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.program import Kernel, walk
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.sm90 import bind

BUILDS: list[dict[str, Any]] = [{"debug": True}, {"perturb": 0}, {"debug": True, "perturb": 7}]


def gemm(**settings: Any) -> Kernel:
    a, b, c = (np.zeros((512, 512), ml_dtypes.bfloat16) for _ in range(3))
    return bind(a, b, c, GemmConfig(**settings)).kernel


def three() -> Kernel:
    a, b, out = (
        np.zeros((64, 64), ml_dtypes.bfloat16),
        np.zeros((8, 64), ml_dtypes.bfloat16),
        np.zeros((64, 8), np.float32),
    )
    return three_warpgroups.bind(
        tp.tensor_map(a, box=(64, 16)), tp.tensor_map(b, box=(8, 16)), out, 4, stages=3
    ).kernel


@tp.kernel()
def shifted(ctx: tp.Context, a: Any, out: Any, rows: Any) -> None:
    """Rows from where a number in memory says, and a set-up that waits."""
    ready = tp.SharedMemBarrier.allocate(ctx, count=128, name="ready")

    @ctx.role("copy", warpgroups=1)
    def copy() -> None:
        ready.arrive()
        ready.wait(0)
        x = ctx.load_global(a, (ctx.load(rows[0]), 0), (64, 32))
        ctx.store_global(out, (0, 0), x + 1)


KERNELS: dict[str, Callable[[], Kernel]] = {
    "gemm": gemm,
    "gemm in clusters": lambda: gemm(bn=256, cluster=2),
    "gemm, K split": lambda: gemm(bn=128, split_k=2),
    "gemm, ping-pong": lambda: gemm(bn=128, bm=64, schedule="pingpong"),
    "global fragments": lambda: (
        shifted.bind(
            *(np.zeros((64, 32), np.float32) for _ in range(2)), np.zeros(8, np.int32)
        ).kernel
    ),
    "C1": lambda: (
        two_producer_warps.bind(np.zeros((4, 9), np.int32), 9, stages=3, cluster=(2, 2)).kernel
    ),
    "C2": lambda: bind_rows_and_columns((2, 1), 2, 6)[0].kernel,
    "C3": three,
    "rounds": lambda: hangs.rounds.bind(np.zeros(256, np.int32)).kernel,
}


def plain(code: str) -> str:
    """The roles of a printed file without comments, and without what debug and perturbed builds
    add.
    """
    text = code[code.index("// ---- roles") : code.index("__global__")]
    lines = [
        line.split("  //")[0].rstrip() for line in text.splitlines() if not line.startswith("//")
    ]
    kept: list[str] = []
    guards: list[int] = []  # indents of the tests that are taken away
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if guards and line.strip() == "}" and indent == guards[-1]:
            guards.pop()
        elif line.strip() == "if (!debug_aborted()) {":
            guards.append(indent)
        elif not re.match(r" *debug_(delay|leave|leave_cluster)\(", line):
            kept.append(line[4 * len(guards) :])
    text = "\n".join(kept)
    text = re.sub(r"debug_(wait|wait_cluster)\((.*), \d+, [^,\n]*\);", r"\1(\2);", text)
    text = re.sub(r"debug_named_sync\((.*), \d+, [^,\n]*\);", r"named_sync(\1);", text)
    text = re.sub(r"debug_cluster_(arrive|wait)\(\d+\)", r"cluster_\1()", text)
    text = re.sub(r"\(debug_aborted\(\) \? 0 : (.*)\)(\)* *(!= 0)?;)", r"\1\2", text)
    return text.replace("debug_named_arrive", "named_arrive")


@pytest.mark.parametrize("name", KERNELS)
def test_a_normal_build_has_nothing_of_it_and_the_others_add_nothing_else(name: str) -> None:
    kernel = KERNELS[name]()
    normal = cuda.source(kernel)
    assert not re.search("debug|perturb", re.sub("//.*", "", normal))
    assert normal == cuda.source(kernel, debug=False, perturb=None)
    for build in BUILDS:
        code = cuda.source(kernel, **build)
        assert plain(code) == plain(normal)
        assert ("debug_aborted()" in roles_of(code)) == build.get("debug", False)
        assert ("debug_delay();" in code) == ("perturb" in build)


def roles_of(code: str) -> str:
    return code[code.index("// ---- roles") :]


@pytest.mark.sampled(suite=7)
@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS, ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_they_compile(name: str, build: dict[str, Any]) -> None:
    kernel = KERNELS[name]()
    compiled = cuda.compile(kernel, **build)
    assert (compiled.debug, compiled.perturbed) == (build.get("debug", False), "perturb" in build)
    assert compiled.smem_bytes == -(-kernel.smem_bytes // 16) * 16 + STATE_BYTES
    warnings = [set(re.findall("warning.*", c.log)) for c in (compiled, cuda.compile(kernel))]
    assert warnings[0] <= warnings[1]
    assert "C7510" not in compiled.log
    found = re.search(
        rf"{compiled.name}\((.*?)\) {{",
        compiled.source[compiled.source.index("__global__") :],
        re.DOTALL,
    )
    assert found is not None
    last = [p.strip() for p in found[1].split(",") if "debug" in p or "perturb" in p]
    assert (
        last == ["DebugRecord* debug"] * compiled.debug + ["u32 perturb_seed"] * compiled.perturbed
    )
    assert found[1].replace("\n", " ").endswith(last[-1])


def test_the_seed_is_no_part_of_the_code() -> None:
    kernel = KERNELS["C3"]()
    assert cuda.source(kernel, perturb=1) == cuda.source(kernel, perturb=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*hangs.HANGS])
def test_planted_hangs_compile_and_the_simulator_finds_them(name: str) -> None:
    make, _ = hangs.HANGS[name]
    program = make()
    with pytest.raises(tp.DeadlockError):
        program.run()
    assert hangs.line(name)
    assert cuda.compile(program.kernel, debug=True).debug


@pytest.mark.slow
def test_the_good_kernel_beside_the_planted_hangs_is_good() -> None:
    out = np.zeros(256, np.int32)
    hangs.rounds.bind(out).run(seed=3)
    np.testing.assert_array_equal(out, hangs.rounds_expected())


def test_no_room_in_shared_memory() -> None:
    b = Builder()
    b.smem("tiles", 128, 128, 7)
    b.smem("rest", 23, 64)
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.SyncWarp)
    kernel = b.finished()
    with pytest.raises(
        LimitError,
        match=r"needs 232,320 \+ 352 = 232,672 bytes of shared memory; .* at most 232,448.* or "
        r"224 bytes, away",
    ):
        cuda.source(kernel, debug=True)
    with pytest.raises(LimitError, match="Take a stage"):
        cuda.compile(kernel, perturb=1)


# -- waits -----------------------------------------------------------------------------


@pytest.mark.parametrize("example", [*NAMES, "rounds", "C2"])
def test_every_wait_has_a_number_its_role_and_its_line(
    example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = (
        KERNELS[example]() if example in KERNELS else load(EXAMPLES / f"{example}.py")(0).kernel
    )
    table = sites(kernel)
    wanted = Counter(
        (role.name, op.loc)
        for role in kernel.roles
        for op in walk(role.body)
        if isinstance(op, ops.MbarWait | ops.NamedSync | ops.ClusterWait)
    )
    assert Counter((site.role.name, site.loc) for site in table if site.role is not None) == wanted
    code = cuda.source(kernel, arch(example) if example in NAMES else "sm_90a", debug=True)
    printed: list[tuple[str, int, str]] = []
    function = loc = ""
    for line in code[code.index("// ---- roles") :].splitlines():
        started = re.match(r"__device__ __forceinline__ void (\w+)\(", line)
        function = started[1] if started else function
        at = re.search(r"  // (\S+:\d+)$", line)
        loc = at[1] if at else loc
        found = re.match(
            r" *debug_(?:wait|wait_cluster|named_sync)\(.*, (\d+), [^,]*\);", line
        ) or re.match(r" *debug_cluster_wait\((\d+)\);", line)
        if found:
            printed.append((function, int(found[1]), loc))
    assert [number for _, number, _ in printed] == list(range(len(table)))
    for function, number, loc in printed:
        site = table[number]
        assert site.role is not None
        assert (site.role.name, site.loc.short) == (function, loc)


def test_only_what_was_loaded_makes_a_load_unsafe() -> None:
    b = Builder()
    tile = b.smem("tile", 1, 32, 1, dtypes.int32)
    table = b.tensor("table", dtypes.int32, 1)
    b.setup_done()
    with b.role("one", warps=1):
        first = b.load(b.element(table, LANE))
        by_way = b.var(binary("add", first, 1))
        b.load(b.element(b.tile(tile), 0, LANE))
        b.load(b.element(table, binary("mul", LANE, 2)))
        b.load(b.element(table, b.let(b.read(by_way))))
    code = cuda.source(b.finished(), debug=True)
    loads = [
        line.split("//")[0].split("=", 1)[1].strip()
        for line in code[code.index("---- roles") :].splitlines()
        if "const i32 x" in line
    ]
    assert loads == [
        "table_data[lane];",
        "(debug_aborted() ? 0 : load_i32(tile() + lane * 4));",
        "table_data[lane * 2];",
        "(debug_aborted() ? 0 : table_data[v6]);",
    ]
