"""Tensor memory as printed: which lanes and columns each access names, what may be used when, debug
builds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.cuda.debug.test_hang import message, number
from tests.support.build import LANE, Builder, binary
from tests.support.cuda.blackwell import gemm, tensor_memory
from tilepipe import cuda, sim
from tilepipe.check import check
from tilepipe.cuda.ptx.tcgen05 import TmemAccess, pieces
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import FragmentRead, const
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import Tmem
from tilepipe.ir.program import Kernel, Launch, TensorArg

BF16, F32 = dtypes.bfloat16, dtypes.float32
CALL = re.compile(r"tmem_(load|store)_16x(256|128)b_x(\d+)\((.*?)\);")


@given(st.integers(1, 64), st.sampled_from([32, 64]))
def test_pieces_cover_each_group_once(groups: int, most: int) -> None:
    found = list(pieces(groups, most))
    assert [g for first, count in found for g in range(first, first + count)] == list(range(groups))
    assert all(count <= most and count & (count - 1) == 0 for _, count in found)
    assert len(found) <= groups // most + most.bit_length()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "cols", "dtype"),
    [(128, 256, F32), (128, 24, F32), (64, 104, F32), (128, 208, BF16), (64, 8, BF16)],
)
@pytest.mark.parametrize("verb", ["load", "store"])
def test_accesses_reach_the_elements(rows: int, cols: int, dtype: DType, verb: str) -> None:
    """Each register of each lane, by the figures of the PTX ISA for .16x256b and .16x128b, against
    what fragments and tensor memory say.
    """
    b = Builder()
    base = b.scalar("base", dtypes.uint32)
    b.setup_done()
    with b.role("group", warpgroups=1):
        f = b.fragment("part", rows, cols, dtype, layout="tmem" if rows == 128 else "wgmma")
        if verb == "load":
            b.do(ops.TmemLoad, f, Tmem(base, rows, cols, dtype))
        else:
            b.do(ops.TmemStore, Tmem(base, rows, cols, dtype), b.value(f))
    code = cuda.source(b.finished(), "sm_100a")
    code = code[code.index("// ---- roles") :]
    at = re.search(r"const u32 at = (.*?);", code)
    assert at is not None
    wide = 4 // dtype.nbytes  # elements of a register, which is a column of tensor memory
    address = 7 << 16 | 16  # some lane and column
    got = {}
    for found, shape, count, operands in CALL.findall(code):
        assert found == verb
        where, held = operands.split(", ")[:: -1 if verb == "load" else 1]
        assert {"256": 1, "128": 2}[shape] == wide
        for warp in range(4):
            for i in range(rows // 64):
                named = {"at": eval(at[1], {}, {"base": address, "warp_in_group": warp}), "i": i}
                start = eval(where, {}, named) - address
                first = int(m[1]) if (m := re.search(r"\+ (\d+)$", held)) else 0
                assert held.startswith(("part[i]", "part[0]"))
                for lane in range(32):
                    for r in range(int(count) * 4 // wide):
                        group, half = divmod(r, 4 // wide)
                        row, column = (
                            8 * (half // (2 // wide)) + lane // 4,
                            lane % 4 * (2 // wide) + half % (2 // wide),
                        )
                        column += group * 8 // wide
                        got[warp, lane, i, first + r] = (
                            (start >> 16) + row,
                            (start & 0xFFFF) + column,
                        )
    want = {}
    for warp, lane, i, r in np.ndindex(4, 32, rows // 64, cols // 2 // wide):
        half = r * wide // 2 % 2
        # of the fragment
        row = (32 * warp + 16 * i if rows == 128 else 16 * warp) + 8 * half + lane // 4
        col = 8 * (r * wide // 4) + 2 * (lane % 4) + r * wide % 2
        tmem_lane = row if rows == 128 else row // 16 * 32 + row % 16
        want[warp, lane, i, r] = (tmem_lane, col // wide)
    assert got == want


def test_the_text_of_an_access() -> None:
    load, store = TmemAccess("ld", 2, "float").snippet(), TmemAccess("st", 4, "u32").snippet()
    assert load.name == "tmem_load_16x256b_x2"
    assert '"tcgen05.ld.sync.aligned.16x256b.x2.b32 {"' in load.code
    assert '"%0, %1, %2, %3, %4, %5, %6, %7"' in load.code
    assert '"}, [%8];"' in load.code
    assert '"=f"(x[7])\n        : "r"(address));' in load.code
    assert store.name == "tmem_store_16x128b_x4"
    assert '"tcgen05.st.sync.aligned.16x128b.x4.b32 [%0], {"' in store.code
    assert '"%1, %2, %3, %4, %5, %6, %7, %8"' in store.code
    assert ':: "r"(address),\n' in store.code


def test_uses_stay_after_the_wait_for_their_loads() -> None:
    b = Builder()
    base, n = b.scalar("base", dtypes.uint32), b.scalar("n")
    b.setup_done()
    with b.role("group", warpgroups=1):
        first, second, third = (
            b.fragment(name, 128, 8, layout="tmem") for name in ("first", "second", "third")
        )
        b.do(ops.TmemLoad, first, Tmem(base, 128, 8, F32))
        b.do(ops.TmemWaitLoad)
        b.do(ops.TmemLoad, second, Tmem(base, 128, 8, F32))
        with b.loop(n):
            inner = b.fragment("inner", 128, 8, layout="tmem")
            b.do(ops.TmemLoad, inner, Tmem(base, 128, 8, F32))
            b.do(ops.TmemWaitLoad)
            b.do(ops.TmemLoad, third, Tmem(base, 128, 8, F32))
        b.do(ops.TmemWaitLoad)
    code = cuda.source(b.finished(), "sm_100a")
    waits = re.findall(
        r"tmem_wait_load\(\); *(?:// \S+)?\n((?: *keep\(\w+\);\n)*)",
        code[code.index("void group(") :],
    )
    assert [re.findall(r"keep\((\w+)\)", w) for w in waits] == [
        ["first"],
        ["second", "third", "inner"],
        ["second", "third"],
    ]


def test_a_wait_inside_a_block_is_for_loads_before_it() -> None:
    b = Builder()
    base, n = b.scalar("base", dtypes.uint32), b.scalar("n")
    b.setup_done()
    with b.role("group", warpgroups=1):
        part = b.fragment("part", 128, 8, layout="tmem")
        b.do(ops.TmemLoad, part, Tmem(base, 128, 8, F32))
        with b.when(binary("gt", n, 3)):
            b.do(ops.TmemWaitLoad)
            b.do(ops.TmemStore, Tmem(base, 128, 8, F32), b.value(part))
    code = cuda.source(b.finished(), "sm_100a")
    assert re.search(r"tmem_wait_load\(\);.*\n *keep\(part\);", code)


@pytest.mark.slow
@pytest.mark.parametrize("make", [gemm, tensor_memory], ids=lambda f: f.__name__)
def test_debug_builds(make: Callable[[], Kernel]) -> None:
    kernel = make()
    code = cuda.source(kernel, "sm_100a", debug=True)
    roles = code[code.index("// ---- roles") :]
    lines = [x.split("  //")[0].strip() for x in roles.splitlines()]
    guards = {"tcgen05_commit": "if (!debug_aborted()) {", "tmem_dealloc": "", "tmem_alloc": ""}
    for name, guard in guards.items():
        at = [i for i, line in enumerate(lines) if line.startswith(f"{name}(")]
        assert at, name
        assert all(
            (lines[i - 1] == guard) if guard else not lines[i - 1].startswith("if") for i in at
        ), name
    assert roles.count("if (!__any_sync(0xffffffff, debug_aborted())) {") == roles.count(
        "(warp_in_group << 21)"
    )
    assert re.search(r"= load_u32\(word\(\)\);", roles), (
        "what tcgen05.alloc wrote is given back as it is"
    )
    compiled = cuda.compile(kernel, "sm_100a", debug=True, perturb=1)
    assert compiled.debug
    assert compiled.perturbed


def _refused(act: Callable[[Builder], None]) -> str:
    b = Builder()
    b.setup_done()
    with b.role("group", warpgroups=1):
        act(b)
    with pytest.raises(CompileError) as error:
        cuda.source(b.finished(), "sm_100a")
    return str(error.value)


@pytest.mark.parametrize(
    ("fragment", "tmem", "words"),
    [
        (
            (128, 16),
            Tmem(const(0), 128, 16, F32),
            'fragment of 128 rows must have layout "tmem", not "wgmma"',
        ),
        ((64, 16), Tmem(const(0), 64, 24, F32), "a fragment 64×16 meets 64×24 of tensor memory"),
        (
            (64, 16),
            Tmem(const(0), 64, 16, BF16),
            "fragment 'part' is float32, the tensor memory that it loads bfloat16",
        ),
        (
            (64, 16),
            Tmem(const(0), 64, 16, dtypes.float8_e4m3),
            "move float32, float16 and bfloat16 here, not float8_e4m3",
        ),
    ],
)
def test_loads_that_do_not_fit(fragment: tuple[int, int], tmem: Tmem, words: str) -> None:
    assert words in _refused(lambda b: b.do(ops.TmemLoad, b.fragment("part", *fragment), tmem))


def test_a_warp_acts_as_one() -> None:
    def act(b: Builder) -> None:
        with b.when(binary("lt", LANE, 4)):
            b.do(ops.TmemDealloc, const(0), 32, 1)

    assert "TmemDealloc is executed by all lanes of a warp together" in _refused(act)


def test_fragments_of_different_layouts_do_not_meet() -> None:
    def pair(b: Builder) -> tuple[Fragment, Fragment]:
        return b.fragment("here", 128, 8, layout="tmem"), b.fragment("there", 128, 8)

    def add(b: Builder) -> None:
        here, there = pair(b)
        b.do(
            ops.FragmentStore,
            b.tile(b.smem("out", 128, 8, 1, F32)),
            binary("add", b.value(here), b.value(there)),
        )

    def assign(b: Builder) -> None:
        here, there = pair(b)
        b.do(ops.FragmentSet, here, b.let(b.value(there)))

    def reduce(b: Builder) -> None:
        here, _ = pair(b)
        b.do(ops.FragmentReduce, b.fragment("row", 128, 1), b.value(here), "add")

    assert (
        "layouts meet, whose registers hold different rows: 'here' has tmem, 'there' has wgmma"
        in _refused(add)
    )
    assert "a value of layout wgmma goes to 'here' of layout tmem" in _refused(assign)
    assert "a value of layout tmem goes to 'row' of layout wgmma" in _refused(reduce)


def test_global_accesses_follow_the_layout() -> None:
    b = Builder()
    tensor = b.tensor("x", F32)
    b.setup_done()
    with b.role("group", warpgroups=1):
        f = b.fragment("part", 128, 8, layout="tmem")
        b.do(ops.FragmentLoadGlobal, f, tensor, (const(0), const(0)))
        b.do(
            ops.FragmentStoreGlobal,
            tensor,
            (const(0), const(0)),
            FragmentRead(F32, shape=(128, 8), fragment=f),
        )
    code = cuda.source(b.finished())
    assert code.count("const i32 row = warp_in_group * 32 + lane / 4;") == 2
    assert code.count("x_data + ") == 2
    assert code.count("line = at + (16 * i + 8 * h) * x_stride_0;") == 2
    assert cuda.compile(b.kernel, "sm_100a").spill_bytes == 0


def test_shared_loads_follow_the_layout() -> None:
    b = Builder()
    tile = b.smem("tile", 128, 8, 1, F32)
    b.setup_done()
    with b.role("group", warpgroups=1):
        f = b.fragment("part", 128, 8, layout="tmem")
        b.do(ops.FragmentLoad, f, b.tile(tile))
        b.do(ops.FragmentStore, b.tile(tile), b.value(f))
    code = cuda.source(b.finished())
    assert (
        code.count("const u32 at = tile() + (warp_in_group * 32 + lane / 4) * 32 + lane % 4 * 8;")
        == 2
    )
    assert code.count("_float2(at + i * 512 + h * 256, ") == 2


def test_parts_of_fragments_are_stored_from_their_registers() -> None:
    b = Builder()
    base = b.scalar("base", dtypes.uint32)
    b.setup_done()
    with b.role("group", warpgroups=1):
        wide, half = (
            b.fragment("wide", 128, 32, layout="tmem"),
            b.fragment("half", 128, 32, BF16, layout="tmem"),
        )
        for f in (wide, half):
            b.do(ops.TmemStore, Tmem(base, 128, 8, f.dtype), b.value(f, 24, 8))
    code = cuda.source(b.finished())
    assert "tmem_store_16x256b_x1(at + (i << 20), wide[i] + 12);" in code
    assert "tmem_store_16x128b_x1(at + (i << 20), half[i] + 6);" in code


def test_a_hang_names_the_commits_that_would_end_it() -> None:
    kernel = gemm()
    said = message(kernel, (number(kernel, "epilogue", "done"), 0, 0, 0, 0, 0))
    assert "waits for phase parity 0 of done" in said
    assert "(1 arrival a phase)" in said
    assert "tcgen05_commit, role 'mma' at blackwell.py:" in said


def pair_of_ctas() -> tuple[Launch, np.ndarray, np.ndarray]:
    """The GEMM of a pair that the tests here print, as a launch; its C, and what that is to be."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (256, 128)).astype(dtypes.bfloat16.numpy) for _ in range(2))
    c = np.zeros((256, 256), np.float32)
    args: dict[str, TensorArg | int | float] = {
        name: TensorArg(x, x.shape) for name, x in (("a", a), ("b", b), ("c", c))
    }
    args["steps"] = 2
    return Launch(gemm(2), 2, args), c, a.astype(np.float32) @ b.astype(np.float32).T


def test_the_pair_that_is_printed_runs() -> None:
    """Its leader frees tensor memory only when its peer has allocated."""
    launch, c, want = pair_of_ctas()
    assert check(launch).ok
    sim.run(launch)
    np.testing.assert_array_equal(c, want)
